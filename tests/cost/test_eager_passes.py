"""What operators move when PyTorch runs them one by one, counted as PyTorch dispatches them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.elementwise import EAGER_KERNELS, EAGER_PASSES

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
mode = pytest.importorskip("torch.utils._python_dispatch")

ROWS, WIDTH = 512, 128
VIEWS = {"slice", "detach", "expand", "unsqueeze", "view", "t", "transpose", "alias"}


class Traffic(mode.TorchDispatchMode):  # type: ignore[misc, name-defined]
    """Adds up the bytes that kernels read and write; what is per row or per column is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes, self.num_kernels = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in VIEWS:
            given = [t for each in args for t in (each if isinstance(each, list) else [each])]
            tensors = [t for t in (*given, out) if isinstance(t, torch.Tensor)]
            whole = [t for t in tensors if t.numel() >= ROWS * WIDTH // 2]
            # of an expanded tensor what it stores
            self.num_bytes += sum(
                min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in whole
            )
            self.num_kernels += 1
        return out


def element(grad: bool = True) -> Any:
    return torch.randn(ROWS, WIDTH, dtype=torch.bfloat16, requires_grad=grad)


def norm(x: Any, weight: Any) -> Any:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)


def rotary(x: Any, cosine: Any, sine: Any) -> Any:
    first, second = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
    return x * cosine + torch.cat((-second, first), -1) * sine


def gated(gate: Any, up: Any) -> Any:
    return torch.nn.functional.silu(gate) * up


def vector() -> Any:
    return torch.ones(WIDTH, dtype=torch.bfloat16, requires_grad=True)


CASES = {
    "norm": (norm, lambda: [element(), vector()], 0, 2),
    "rotary": (rotary, lambda: [element()], 2, 2),
    "gated": (gated, lambda: [element(), element()], 0, 1),
}
"""Part → formula, what gradients are taken of, how many constant rows, how many alike a layer."""


@pytest.mark.parametrize("part", CASES)
def test_passes_and_kernels(part: str) -> None:
    formula, leaves, constants, alike = CASES[part]
    tensors = leaves()
    rows = [torch.randn(1, WIDTH, dtype=torch.bfloat16) for _ in range(constants)]
    with Traffic() as forward:
        out = formula(*tensors, *rows)
    gradient = torch.ones_like(out)
    with Traffic() as backward:
        torch.autograd.grad(out, tensors, gradient)
    for way, found in enumerate((forward, backward)):
        assert found.num_bytes / (2 * ROWS * WIDTH) == pytest.approx(
            EAGER_PASSES[part][way], rel=1e-3
        )
        assert alike * (found.num_kernels - 1) == EAGER_KERNELS[part][way]
