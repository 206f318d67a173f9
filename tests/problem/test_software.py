"""Software profiles: the attention kernels that they name."""

import pytest

from planner.errors import InputError
from planner.inputs.files import names
from planner.inputs.values import load, parse
from planner.problem.software import AttentionKernels, Software


@pytest.mark.parametrize("name", names("software"))
def test_shipped_profile_names_its_attention_kernels(name: str) -> None:
    found = load(name, "software", Software).attention
    assert found is not None
    assert found.source


@pytest.mark.parametrize(
    ("kernels", "fault"),
    [
        ("[flash-v2, flash-v2]", "a kernel is given twice"),
        ("[]", "value"),
        ("[flash-v9]", "flash-v9"),
    ],
)
def test_wrong_kernels_are_refused_with_their_place(kernels: str, fault: str) -> None:
    text = f"value: {kernels}\nsource: test\nstatus: assumed\n"
    with pytest.raises(InputError, match=fault) as caught:
        parse(text, "attention.yaml", AttentionKernels)
    assert "attention.yaml:1" in str(caught.value)


def test_kernels_have_a_source() -> None:
    with pytest.raises(InputError, match="source"):
        parse("value: [flash]\nstatus: assumed\n", "attention.yaml", AttentionKernels)
