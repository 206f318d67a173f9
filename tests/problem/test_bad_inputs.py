"""Every mistake a file can hold: one paragraph with file, line, key and what is allowed."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from planner.errors import InputError, UnitError, UnknownNameError
from planner.problem.scenario import load_scenario


@dataclass(frozen=True)
class Case:
    """Replace `old` by `new` in `file`; the error stands on the line that holds `at`."""

    name: str
    file: str
    old: str
    new: str
    key: str | None
    says: str
    allowed: str
    at: str | None = None  # default: the first line of `new`
    kind: type[InputError] = InputError
    nearest: str | None = None


FROZEN = "adapters and frozen parameters are not planned"

A, F, T = "accelerator.yaml", "fabric.yaml", "topology.yaml"
M, W, S = "model.yaml", "software.yaml", "scenario.yaml"

CASES = [
    # quantities
    Case("Gb for GB", T, "450 GB/s", "450 Gb/s", "tiers.0.fabric.bandwidth.value",
         "unit 'Gb/s'", "GB/s", kind=UnitError, nearest="GB/s or Gbit/s"),
    Case("Gbps", F, "400 Gbit/s", "400 Gbps", "bandwidth.value",
         "unit 'Gbps'", "Gbit/s", kind=UnitError, nearest="GB/s or Gbit/s"),
    Case("G", A, "80 GiB", "80 G", "hbm_capacity.value",
         "unit 'G'", "GiB", kind=UnitError, nearest="GB or Gbit"),
    Case("letter case", A, "2 TB/s", "2 tb/s", "hbm_bandwidth.value",
         "unit 'tb/s'", "TB/s", kind=UnitError, nearest="TB/s"),
    Case("TFLOPS", A, "100 TFLOP/s", "100 TFLOPS", "peak.bf16.value",
         "unit 'TFLOPS'", "TFLOP/s", kind=UnitError, nearest="TFLOP/s"),
    Case("unknown unit", A, "50 MiB", "50 furlongs", "l2.value",
         "unit 'furlongs'", "MiB", kind=UnitError),
    Case("wrong dimension", A, "100 TFLOP/s", "100 TB/s", "peak.bf16.value",
         "does not fit here", "TFLOP/s", kind=UnitError),
    Case("capacity for rate", A, "2 TB/s", "2 TB", "hbm_bandwidth.value",
         "does not fit here", "TB/s", kind=UnitError),
    Case("bytes for seconds", F, "5 us", "5 B", "hop_latency.value",
         "does not fit here", "us", kind=UnitError),
    Case("unit missing", A, "value: 2 TB/s", "value: 2e12", "hbm_bandwidth.value",
         "has no unit", "TB/s"),
    Case("unit missing in text", A, "value: 2 TB/s", 'value: "2"', "hbm_bandwidth.value",
         "has no unit", "TB/s", kind=UnitError),
    Case("number missing in text", A, "2 TB/s", "fast TB/s", "hbm_bandwidth.value",
         "does not start with a number", "TB/s", kind=UnitError),
    Case("thousands separator", A, "2 TB/s", "'2,000 GB/s'", "hbm_bandwidth.value",
         "is not a unit", "GB/s", kind=UnitError),
    Case("negative rate", A, "2 TB/s", "-2 TB/s", "hbm_bandwidth.value", "is negative", "> 0"),
    Case("zero rate", F, "400 Gbit/s", "0 Gbit/s", "bandwidth.value", "is zero", "> 0"),
    Case("infinite rate", F, "400 Gbit/s", "1e400 Gbit/s", "bandwidth.value",
         "is not finite", "Gbit/s", kind=UnitError),
    Case("overflow by prefix", F, "400 Gbit/s", "1e308 Tbit/s", "bandwidth.value",
         "is not finite", "Gbit/s", kind=UnitError),
    Case("text for share", A, "value: 0.9,", "value: fast,", "hbm_efficiency.value",
         "'fast' is not a number", "a plain number"),
    Case("boolean for share", A, "value: 0.9,", "value: true,", "hbm_efficiency.value",
         "true is not a number", "a plain number"),
    Case("share above one", A, "value: 0.9,", "value: 90,", "hbm_efficiency.value",
         "90 is out of range", "<= 1"),
    Case("unit for share", A, "value: 0.9,", "value: 90 %,", "hbm_efficiency.value",
         "'90 %' is not a number", "a plain number"),
    Case("oversubscription below one", T, "value: 2,", "value: 0.5,",
         "tiers.1.oversubscription.value", "0.5 is out of range", ">= 1"),
    Case("price negative", S, "2.5 USD/hour", "-2.5 USD/hour", "price_per_accelerator_hour",
         "is negative", "USD/hour"),
    Case("price without unit", S, "2.5 USD/hour", "2.5", "price_per_accelerator_hour",
         "2.5 has no unit", "USD/hour"),
    Case("price in euro", S, "2.5 USD/hour", "2.5 EUR/hour", "price_per_accelerator_hour",
         "unit 'EUR/hour'", "USD/hour", kind=UnitError, nearest="USD/hour"),
    Case("sparse peak", A, "toy-part", "H100", "peak.bf16.value",
         "1979 TFLOP/s is the sparse figure; dense is 989.5 TFLOP/s", "dense peak of H100",
         at="bf16: {", nearest="989.5 TFLOP/s"),
    # provenance
    Case("source missing", A, 'l2: {value: 50 MiB, source: "test", status',
         "l2: {value: 50 MiB, status", "l2.source", "missing", "source (text)"),
    Case("source empty", A, 'l2: {value: 50 MiB, source: "test"',
         'l2: {value: 50 MiB, source: ""', "l2.source", "names no source", "text"),
    Case("status missing", A, 'l2: {value: 50 MiB, source: "test", status: assumed}',
         'l2: {value: 50 MiB, source: "test"}', "l2.status", "missing", "datasheet"),
    Case("status unknown", A, '50 MiB, source: "test", status: assumed',
         '50 MiB, source: "test", status: data-sheet', "l2.status", "is not a status",
         "datasheet, measured, fitted, assumed", nearest="datasheet"),
    Case("no provenance", A, 'l2: {value: 50 MiB, source: "test", status: assumed}',
         "l2: 50 MiB", "l2", "no source and status", "a mapping with value"),
    Case("figure key unknown", A, '50 MiB, source', '50 MiB, sauce: 1, source', "l2.sauce",
         "unknown key", "source", nearest="source"),
    Case("topology source missing", T, "source: test\n", "", "source", "missing", "text",
         at="name: toy-cluster"),
    # keys
    Case("key missing", S, "num_accelerators: 32\n", "", "num_accelerators", "missing",
         "an integer", at="model:"),
    Case("nested key missing", S, "  precision: bf16\n", "", "training.precision", "missing",
         "bf16, fp16", at="training:"),
    Case("key misspelt", S, "num_accelerators", "num_acelerators", "num_acelerators",
         "unknown key", "num_accelerators", nearest="num_accelerators"),
    Case("nested key misspelt", S, "sequence_length", "sequence_lenght",
         "training.sequence_lenght", "unknown key", "sequence_length",
         nearest="sequence_length"),
    Case("python name for key", A, "l2: {", "l2_bytes: {", "l2_bytes", "unknown key", "l2"),
    Case("search key unknown", S, "  tp: [1, 2, 4, 8]", "  tensor: [1]", "search.tensor",
         "unknown key", "tp, cp, pp"),
    Case("duplicate key", S, "num_accelerators: 32", "num_accelerators: 32\nnum_accelerators: 8",
         "num_accelerators", "given twice, first on line 3", "each key once",
         at="num_accelerators: 8"),
    Case("precision key unknown", A, "  fp8: {", "  fp32: {", "peak.fp32", "unknown key",
         "bf16, fp16, fp8, fp4"),
    Case("number as key", S, "search:\n", "search:\n  8: 1\n", "search", "key 8 is not text",
         "plain text", at="8: 1"),
    Case("merge key", M, "name: toy-model", "<<: {name: toy-model}", None,
         "merge key << is not read", "every key written out"),
    Case("low-rank adapters", S, "  precision: bf16", "  precision: bf16\n  lora_rank: 16",
         "training.lora_rank", FROZEN, "sequence_length", at="lora_rank"),
    Case("what is trained", S, "  precision: bf16", "  precision: bf16\n  trainable: lora",
         "training.trainable", FROZEN, "sequence_length", at="trainable"),
    Case("peft beside training", S, "num_accelerators: 32", "num_accelerators: 32\npeft: {}",
         "peft", FROZEN, "training", at="peft"),
    Case("frozen layers of a model", M, "norm: rmsnorm", "norm: rmsnorm\nnum_frozen_layers: 2",
         "num_frozen_layers", FROZEN, "num_layers", at="num_frozen_layers"),
    Case("software misspelt", S, "software:", "sftware:", "sftware", "unknown key", "software",
         nearest="software"),
    # integers
    Case("negative", S, "sequence_length: 4096", "sequence_length: -4",
         "training.sequence_length", "-4 is negative", "an integer >= 1"),
    Case("zero", S, "num_accelerators: 32", "num_accelerators: 0", "num_accelerators",
         "0 is too small", "an integer >= 1"),
    Case("fraction for integer", S, "num_accelerators: 32", "num_accelerators: 8.5",
         "num_accelerators", "8.5 is not an integer", "an integer"),
    Case("float for integer", S, "num_accelerators: 32", "num_accelerators: 8.0",
         "num_accelerators", "8.0 is not an integer", "an integer"),
    Case("exponent for integer", S, "num_accelerators: 32", "num_accelerators: 1e1",
         "num_accelerators", "10.0 is not an integer", "an integer"),
    Case("text for integer", S, "num_accelerators: 32", 'num_accelerators: "32"',
         "num_accelerators", "'32' is text", "an integer"),
    Case("boolean for integer", M, "num_layers: 4", "num_layers: true", "num_layers",
         "true is not an integer", "an integer"),
    Case("null for integer", M, "num_layers: 4", "num_layers:", "num_layers",
         "null is not an integer", "an integer"),
    Case("list for integer", M, "num_layers: 4", "num_layers: [4]", "num_layers",
         "a list is not an integer", "an integer"),
    Case("huge integer", M, "num_layers: 4", f"num_layers: {10**40}", "num_layers",
         "is too large", "<= 1024"),
    Case("integer of 5000 digits", M, "num_layers: 4", f"num_layers: {'9' * 5000}",
         "num_layers", "is not", "number"),
    Case("not a number", S, "total_tokens: 15e12", "total_tokens: .nan",
         "training.total_tokens", "not a finite number", "a finite number"),
    Case("infinite", S, "total_tokens: 15e12", "total_tokens: -.inf",
         "training.total_tokens", "not a finite number", "a finite number"),
    Case("1e400", S, "total_tokens: 15e12", "total_tokens: 1e400",
         "training.total_tokens", "not a finite number", "a finite number"),
    Case("negative tokens", S, "total_tokens: 15e12", "total_tokens: -1",
         "training.total_tokens", "-1 is negative", "a number > 0"),
    Case("text for tokens", S, "total_tokens: 15e12", "total_tokens: 15T",
         "training.total_tokens", "'15T' is text", "a number > 0"),
    Case("document longer than a sequence", S, "sequence_length: 4096",
         "sequence_length: 4096\n  mean_document_length: 4097", "training.mean_document_length",
         "documents of 4097 tokens are longer than a sequence of 4096", "from 1 to 4096",
         at="mean_document_length", nearest="4096"),
    Case("document of no tokens", S, "sequence_length: 4096",
         "sequence_length: 4096\n  mean_document_length: 0", "training.mean_document_length",
         "0 is too small", ">= 1", at="mean_document_length"),
    # other types
    Case("number for text", M, "name: toy-model", "name: 7", "name", "7 is not text", "text"),
    Case("yes for boolean", M, "gated_mlp: true", "gated_mlp: yes", "gated_mlp",
         "'yes' is text", "true or false"),
    Case("number for boolean", M, "gated_mlp: true", "gated_mlp: 1", "gated_mlp",
         "1 is not true or false", "true or false"),
    Case("unknown choice", M, "norm: rmsnorm", "norm: rms-norm", "norm", "not known",
         "rmsnorm, layernorm", nearest="rmsnorm"),
    Case("unknown precision", S, "precision: bf16", "precision: fp32", "training.precision",
         "'fp32' is not known", "bf16, fp16, fp8", ),
    Case("unknown optimizer", S, "optimizer: adam", "optimizer: adamw", "training.optimizer",
         "'adamw' is not known", "adam", nearest="adam"),
    Case("scalar for mapping", S, "search:\n  tp: [1, 2, 4, 8]\n  sp: true\n  mbs: 1\n",
         "search: fast\n", "search", "'fast' is text", "a mapping with the keys tp"),
    Case("list for mapping", S, "search:\n  tp: [1, 2, 4, 8]\n  sp: true\n  mbs: 1\n",
         "search: [tp]\n", "search", "a list is not a mapping", "a mapping with the keys tp"),
    Case("scalar for list", W, "rules: [heads-divide]", "rules: heads-divide", "rules",
         "'heads-divide' is text", "a list"),
    Case("mapping for list", W, "rules: [heads-divide]", "rules: {}", "rules",
         "a mapping is not a list", "a list"),
    Case("empty list", W, "zero_stages: [0, 1]", "zero_stages: []", "zero_stages",
         "the list is empty", "one or more"),
    Case("item too large", W, "zero_stages: [0, 1]", "zero_stages: [0, 4]", "zero_stages.1",
         "4 is too large", "<= 3"),
    Case("axis unknown", W, "[tp, cp, dp, pp]", "[tp, cp, data, pp]", "orders.tp-cp-dp-pp.2",
         "'data' is not known", "tp, cp"),
    Case("axis twice", W, "[tp, cp, dp, pp]", "[tp, cp, tp, pp]", "orders.tp-cp-dp-pp",
         "given twice", "each axis once"),
    # search
    Case("search text", S, "mbs: 1", "mbs: one", "search.mbs", "'one' is text", "an integer"),
    Case("search zero", S, "[1, 2, 4, 8]", "[0, 1]", "search.tp.0", "0 is too small", ">= 1"),
    Case("search scalar zero", S, "mbs: 1", "mbs: 0", "search.mbs", "0 is too small", ">= 1"),
    Case("search empty", S, "[1, 2, 4, 8]", "[]", "search.tp", "the list is empty",
         "one or more"),
    Case("search fraction", S, "[1, 2, 4, 8]", "[1, 2.5]", "search.tp.1", "2.5 is not an integer",
         "an integer"),
    Case("search sp text", S, "sp: true", "sp: always", "search.sp", "'always' is text",
         "true or false"),
    Case("search tie", S, "  mbs: 1", "  tie_fraction: 2", "search.tie_fraction",
         "2 is too large", "< 1"),
    Case("search memory", S, "  mbs: 1", "  memory: fit", "search.memory", "not known",
         "fits, fragile", nearest="fits"),
    # meaning
    Case("heads over key-value heads", M, "num_key_value_heads: 4", "num_key_value_heads: 5",
         "num_key_value_heads", "16 is not a multiple of num_key_value_heads 5",
         "1, 2, 4, 8, 16"),
    Case("hidden over heads", M, "hidden_size: 1024", "hidden_size: 1025",
         "num_attention_heads", "1025 is not a multiple", "head_dim", at="num_attention_heads"),
    Case("too many accelerators", S, "num_accelerators: 32", "num_accelerators: 64",
         "num_accelerators", "64 accelerators are more than the 32 of topology toy-cluster",
         "from 1 to 32", nearest="32"),
    Case("tier twice", T, "name: leaf", "name: nvlink", "tiers.1.name", "given twice",
         "differ"),
    Case("tier reserved", T, "name: leaf", "name: hbm", "tiers.1.name",
         "the accelerator's own memory", "'hbm'"),
    Case("no matmuls of precision", S, "precision: bf16", "precision: nvfp4",
         "training.precision", "nvfp4 needs fp4 matmuls", "bf16"),
    Case("gemm without peak", A, "  bf16:\n", "  fp4:\n", "gemm.fp4", "no peak for fp4",
         "bf16, fp8"),
    Case("experts", M, "norm: rmsnorm",
         "norm: rmsnorm\nmoe: {num_experts: 4, top_k: 8, expert_ffn_hidden_size: 64}",
         "moe.top_k", "top_k 8 exceeds num_experts 4", "from 1 to 4", at="moe:"),
    # references
    Case("unknown model", S, "./model.yaml", "llama3-70", "model", "unknown model 'llama3-70'",
         "names", kind=UnknownNameError),
    Case("unknown accelerator", T, "./accelerator.yaml", "h100-sxm-80g", "accelerator",
         "unknown accelerator", "h100-sxm-80gb", kind=UnknownNameError,
         nearest="h100-sxm-80gb"),
    Case("unknown fabric", T, "fabric: ./fabric.yaml", "fabric: infiniband-ndd",
         "tiers.1.fabric", "unknown fabric", "infiniband-ndr", kind=UnknownNameError,
         nearest="infiniband-ndr"),
    Case("number for reference", S, "./model.yaml", "70", "model", "70 is not a mapping",
         "a mapping, the path"),
    # YAML
    Case("tab", S, "  tp: [1, 2, 4, 8]", "\ttp: [1]", None, "YAML", "not tabs"),
    Case("unclosed bracket", S, "[1, 2, 4, 8]", "[1, 2, 4, 8", None, "YAML", "YAML 1.2",
         at="sp:"),
    Case("bad indentation", S, "  precision: bf16", "   precision: bf16", None, "YAML",
         "YAML 1.2"),
    Case("undefined alias", S, "mbs: 1", "mbs: *one", None, "undefined alias", "YAML 1.2"),
    Case("alias cycle", S, "mbs: 1", "mbs: &m [*m]", "search.mbs.0", "contains it", "no cycles"),
    Case("python tag", S, "mbs: 1", "mbs: !!python/name:os.system x", "search.mbs",
         "is not a value", "text, numbers"),
    Case("two documents", S, "mbs: 1\n", "mbs: 1\n---\n", None, "YAML", "one YAML",
         at="---"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_mistake(case: Case, folder: Path, texts: dict[str, str]) -> None:
    text = texts[case.file]
    assert case.old in text
    if case.name == "sparse peak":
        text = text.replace("100 TFLOP/s", "1979 TFLOP/s")
    text = text.replace(case.old, case.new, 1)
    (folder / case.file).write_text(text)

    with pytest.raises(InputError) as caught:
        load_scenario(folder / "scenario.yaml")

    error, message = caught.value, str(caught.value)
    assert type(error) is case.kind
    assert error.exit_code == 2
    assert error.key == case.key
    assert case.says in error.message
    assert error.allowed
    assert case.allowed in error.allowed
    assert case.nearest is None or error.nearest == case.nearest
    assert error.path
    assert Path(error.path).name == case.file
    assert error.line
    assert (case.at or case.new.split("\n")[0]) in text.splitlines()[error.line - 1]
    assert error.column
    assert message.startswith(f"{error.path}:{error.line}:{error.column}: ")
    assert "\n" not in message
    assert "pydantic" not in message


@pytest.mark.parametrize(
    ("content", "says", "line"),
    [
        (b"", "the file is empty", 1),
        (b"# only a comment\n", "the file is empty", 1),
        (b"- a\n- b\n", "a list is not a mapping", 1),
        (b"llama\n", "'llama' is not a mapping", 1),
        (b"model: a\nname: caf\xe9\n", "0xe9 is not UTF-8", 2),
        (b"model: \x00\n", "not readable as YAML", None),
        (b"[" * 5000, "nested too deeply", None),
        (b"model: [\n", "not readable as YAML", 2),
    ],
    ids=["empty", "comment", "list", "scalar", "latin-1", "NUL", "deep", "open"],
)
def test_whole_file(content: bytes, says: str, line: int | None, folder: Path) -> None:
    path = folder / "scenario.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert says in str(caught.value)
    assert caught.value.allowed
    assert caught.value.path == str(path)
    assert caught.value.line == line


def test_alias_bomb(folder: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (folder / "scenario.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match="aliases"):
        load_scenario(folder / "scenario.yaml")


def test_too_long(folder: Path) -> None:
    (folder / "scenario.yaml").write_text("# " + "x" * 2**22)
    with pytest.raises(InputError, match="bytes long"):
        load_scenario(folder / "scenario.yaml")


def test_missing_file_names_the_near_one(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(folder / "scenarios.yaml")
    assert caught.value.nearest == str(folder / "scenario.yaml")


def test_missing_referenced_file(folder: Path, texts: dict[str, str]) -> None:
    text = texts["scenario.yaml"].replace("./model.yaml", "./modle.yaml")
    (folder / "scenario.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_scenario(folder / "scenario.yaml")
    assert caught.value.path == str(folder / "scenario.yaml")
    assert (caught.value.line, caught.value.key) == (1, "model")
    assert "modle.yaml" in str(caught.value)


def test_folder_for_file(folder: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_scenario(folder)


def test_unknown_scenario_name() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_scenario("no-such-scenario")
    assert "scenario" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "key", "says"),
    [
        (("training.sequence_length", "-4"), "training.sequence_length", "-4 is negative"),
        (("training.sequence_lenght", "4"), "training.sequence_lenght", "unknown key"),
        (("model.num_layers", "x"), "model.num_layers", "'x' is text"),
        (("model.num_layers.value", "3"), "num_layers", "a mapping is not an integer"),
        (("topology.tiers.2.width", "3"), "topology.tiers.2.width", "no item '2'"),
        (("topology.tiers.leaf.width", "3"), "topology.tiers.leaf.width", "no item 'leaf'"),
        (("topology.tiers.0.width", "0"), "topology.tiers.0.width", "too small"),
        (("search.tp", "[1"), "search.tp", "YAML"),
        (("search.tp", ""), None, ""),
        (("model", "no-such"), "model", "unknown model"),
        (("num_accelerators", "33"), "num_accelerators", "more than the 32"),
        (("training.sequence_length", "{a"), "training.sequence_length", "but got the end"),
        (("search.deadline", "abc days"), "search.deadline", "'abc days' does not start with"),
        (("search.deadline", "3 weeks"), "search.deadline", "ns, h, hour, days"),
        (("search.zero_stage", "4"), "search.zero_stage", ">= 0 and <= 3"),
        (("search.num_accelerators", "fre"), "search.num_accelerators", "did you mean 'free'"),
        (("search.tp", "0"), "search.tp", "an integer >= 1 and <= 10^12"),
        (("", "1"), "", "unknown key"),
    ],
)
def test_bad_override(override: tuple[str, str], key: str | None, says: str, folder: Path) -> None:
    if override == ("search.tp", ""):  # an empty value takes a restriction away
        assert load_scenario(folder / "scenario.yaml", dict([override])).search.tp is None
        return
    with pytest.raises(InputError) as caught:
        load_scenario(folder / "scenario.yaml", dict([override]))
    assert says in str(caught.value)
    assert "--set " + override[0] in str(caught.value)
    assert caught.value.key == (key or None)
