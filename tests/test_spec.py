"""The spec as a value and as a file: readable, editable, and refused by name where it does not hold together."""

import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import bayesin
from bayesin.errors import SpecError
from bayesin.symmetry import PermutationSpec, explain
from symmetry_checks import normal, specs, weights

X = normal(1, 2, 5, scale=1.0)


def mlp(p, x):
    return jax.nn.relu(x @ p["w0"] + p["b0"][None]) @ p["w1"]


PARAMS = weights(w0=(5, 6), b0=(6,), w1=(6, 3))
SPEC = bayesin.discover(mlp, PARAMS, X)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(specs())
def test_a_spec_survives_json(spec):
    text = json.dumps(spec.to_json())
    back = PermutationSpec.from_json(json.loads(text))
    assert back.sizes == spec.sizes
    # Fixed factors of size 1, and groups of size 1, say nothing about an axis; all else comes back.
    assert [back.shape(path) for path in back.axes] == [spec.shape(path) for path in spec.axes]
    assert PermutationSpec.from_json(back.to_json()) == back
    assert hash(PermutationSpec.from_json(back.to_json())) == hash(back)


def test_a_spec_survives_a_file_with_its_reasons(tmp_path):
    path = SPEC.save(tmp_path / "spec.json")
    back = PermutationSpec.load(path)
    assert back == SPEC and hash(back) == hash(SPEC)
    assert explain(back) == explain(SPEC)
    assert json.loads(path.read_text())["parameters"] == {"b0": ["g0"], "w0": ["5", "g0"], "w1": ["g0", "3"]}


def test_a_spec_is_static_under_jit():
    jitted = jax.jit(bayesin.permute, static_argnums=1)
    jitted(PARAMS, SPEC, SPEC.identity())
    jitted(PARAMS, PermutationSpec.from_json(SPEC.to_json()), SPEC.identity())
    assert jitted._cache_size() == 1
    with pytest.raises(AttributeError):
        SPEC.parameters = ()
    assert pickle.loads(pickle.dumps(SPEC)) == SPEC


def test_an_edited_file_is_used_as_written(tmp_path):
    path = SPEC.save(tmp_path / "spec.json")
    data = json.loads(path.read_text())
    data["parameters"] = {"b0": ["2 * half"], "w0": ["5", "2 * half"], "w1": ["2 * half", "3"]}
    data["groups"] = {"half": 3}
    path.write_text(json.dumps(data))
    spec = PermutationSpec.load(path)
    assert spec.sizes == {"half": 3}
    assert bayesin.verify(mlp, PARAMS, X, spec, key=jax.random.key(0)) < 1e-10


EDITS = [
    (lambda d: d.update(format="other"), "not a permutation spec"),
    (lambda d: d.update(version=4), "version 4 is not supported"),
    (lambda d: d.pop("parameters"), 'needs "parameters"'),
    (lambda d: d["groups"].update(g0=7), "has shape"),  # found when it meets the parameters
    (lambda d: d["groups"].update(g0=0), "group 'g0' needs a positive whole size"),
    (lambda d: d["groups"].update(g0=True), "group 'g0' needs a positive whole size"),
    (lambda d: d["groups"].update(g1=4), "group 'g1' is declared but no parameter has it"),
    (lambda d: d["groups"].update({"7": 4}), "'7' cannot name a group"),
    (lambda d: d["groups"].update({"a * b": 4}), "cannot name a group"),
    (lambda d: d["parameters"].update(w0=["5", "h"]), "'w0', axis 1: 'h' is neither a group of the spec nor a size"),
    (lambda d: d["parameters"].update(w0=["5", ""]), "'w0', axis 1: '' is neither"),
    (lambda d: d["parameters"].update(w0=["5", "-6"]), "'w0', axis 1: '-6' is neither"),
    (lambda d: d["parameters"].update(w0=["5", "0"]), "'w0', axis 1: '0' is neither"),
    (lambda d: d["parameters"].update(w0=["5", "9" * 5000]), "'w0', axis 1: '999"),
    (lambda d: d["parameters"].update(w0=["5", 6]), "'w0', axis 1: expected a product"),
    (lambda d: d["parameters"].update(w0="5, g0"), "'w0' needs a list"),
    (lambda d: d["parameters"].update(w0=["±5", "g0"]), "'w0', axis 0: '±5' needs a group"),
    (lambda d: d["parameters"].update(w0=["5", "g0{2}"]), "'w0', axis 1: '2' is not a scale with its power"),
    (lambda d: d["parameters"].update(w0=["5", "g0{s, -s}"]), "'w0': 'g0{s, -s}' has the scale 's' twice"),
    (lambda d: d["parameters"].update(w0=["5", "2 + g0"]), r"'w0' has shape \(5, 6\), but the spec says \(5, 8\)"),
    (lambda d: d["parameters"].update(w0=["5", "g0[5]"]), "'w0', axis 1: 'g0\\[5\\]' is neither"),
    (lambda d: d["parameters"].update(w9=["g0"]), "parameter 'w9' of the spec is missing from the tree"),
    (lambda d: d["parameters"].pop("b0"), "parameter 'b0' is not in the spec"),
    (lambda d: d["parameters"].update(w1=["g0", "4"]), r"'w1' has shape \(6, 3\), but the spec says \(6, 4\)"),
    (lambda d: d["parameters"].update(w1=["g0"]), "'w1' has 1 leading axes|'w1' has shape"),
]


@pytest.mark.parametrize("edit, message", EDITS, ids=[message[:30] for _, message in EDITS])
def test_a_file_that_does_not_hold_together_is_refused_by_name(tmp_path, edit, message):
    data = SPEC.to_json()
    edit(data)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(data))
    with pytest.raises(SpecError, match=message):
        PermutationSpec.load(path).check(PARAMS)


def test_duplicates_are_refused_by_name(tmp_path):
    path = tmp_path / "spec.json"
    text = json.dumps(SPEC.to_json())
    path.write_text(text.replace('"b0": ["g0"]', '"b0": ["g0"], "b0": ["g0"]', 1))
    with pytest.raises(SpecError, match="'b0' is named twice"):
        PermutationSpec.load(path)
    with pytest.raises(SpecError, match="'b0' is named twice"):
        PermutationSpec((*SPEC.parameters, SPEC.parameters[0]))


def test_sizes_that_conflict_are_refused_by_name():
    factor = bayesin.symmetry.Factor
    with pytest.raises(SpecError, match="group 'g0' has size 6 elsewhere and 5 in 'w1'"):
        PermutationSpec((("b0", (((factor(6, "g0"),),),)), ("w1", (((factor(5, "g0"),),),))))
    with pytest.raises(SpecError, match="sizes start at 1"):
        PermutationSpec((("b0", (((factor(0),),),)),))
    with pytest.raises(SpecError, match="'b0', axis 0: an axis is a sum of at least one product"):
        PermutationSpec((("b0", ((factor(6),),)),))
    with pytest.raises(SpecError, match="'b0', axis 1: an axis is a sum of at least one product"):
        PermutationSpec((("b0", (((factor(6),),), ())),))


INDEXED = [
    ({"w": ["h * q"]}, {"h": 2, "q[h]": 3}, {}, "'w', axis 0: 'q' is neither"),
    ({"w": ["q[h]"], "v": ["h"]}, {"h": 2, "q[h]": 3}, {}, "'q.h.' needs exactly one factor 'h' beside it"),
    ({"w": ["h * h * q[h]"]}, {"h": 2, "q[h]": 3}, {}, "'q.h.' needs exactly one factor 'h' beside it"),
    ({"w": ["q[h]", "h", "h"]}, {"h": 2, "q[h]": 3}, {}, "'w', axis 0: 'q.h.' needs exactly one"),
    ({"w": ["q[h]", "h + 2"]}, {"h": 2, "q[h]": 3}, {}, "in all parts of one other axis"),
    ({"w": ["q[k]", "h"]}, {"h": 2, "q[k]": 3}, {}, "there is no other factor 'k'"),
    ({"w": ["q[q]"]}, {"q[q]": 3}, {}, "there is no other factor 'q'"),
    ({"w": ["h * q[h, h]"]}, {"h": 2, "q[h, h]": 3}, {}, "there is no other factor 'h'"),
    ({"w": ["l * h[l] * q[h]"]}, {"h[l]": 2, "q[h]": 3}, {"l": 4}, "needs 'l' before 'h'"),
    ({"w": ["a[b] * b[a]"]}, {"a[b]": 2, "b[a]": 3}, {}, "'a.b.' needs 'a' before 'b'"),
    ({"w": ["l * q"]}, {"q": 2}, {"l[q]": 4}, "fixed factor 'l.q.' cannot be indexed"),
    ({"w": ["l"]}, {"l": 4}, {"l": 4}, "'l' is declared twice"),
    ({"w": ["q"]}, {"q": 4}, {"l": 4}, "fixed factor 'l' is declared but no parameter has it"),
    ({"w": ["q"]}, {"q[": 4}, {}, "'q.' cannot name a group"),
    ({"w": ["q + "]}, {"q": 4}, {}, "'w', axis 0: '' is neither"),
    ({"w": ["q | "]}, {"q": 4}, {}, "'w', axis 0: '' is neither"),
    ({"w": ["1 + 1", "q | 3"]}, {"q": 4}, {}, "'w', axis 1: its options have sizes 3, 4"),
    ({"w": ["2", "q | 4"]}, {"q": 4}, {}, "'w' has axes with 2 options, and no axis with as many terms"),
    ({"w": ["1 + 1", "3 + 1", "q | 4"]}, {"q": 4}, {}, "and more than one axis with as many terms"),
    ({"w": ["1 + 1", "h | 2", "4 | q[h]"]}, {"h": 2, "q[h]": 4}, {}, "'q.h.' needs exactly one factor 'h' beside it"),
]


@pytest.mark.parametrize("parameters, groups, fixed, message", INDEXED, ids=[message for *_, message in INDEXED])
def test_an_index_that_cannot_be_is_refused_by_name(parameters, groups, fixed, message):
    with pytest.raises(SpecError, match=message):
        PermutationSpec.parse(parameters, groups, fixed=fixed)


def test_sums_and_indexed_groups_have_shapes_sizes_and_an_order():
    axes = {"w": ["layer", "h[layer] * q[layer, h] + 2 * h[layer]", "5 + d"], "b": ["d"]}
    spec = PermutationSpec.parse(axes, {"h[layer]": 3, "q[layer,h]": 4, "d": 2}, fixed={"layer": 2})
    assert spec.shape("w") == (2, 18, 7)
    assert spec.outer("q") == ("layer", "h") and spec.perm_shape("q") == (2, 3, 4) and spec.perm_shape("d") == (2,)
    assert spec.log10_order == pytest.approx(np.log10(6.0**2 * 24.0**6 * 2))
    assert spec.to_json()["version"] == 2 and SPEC.to_json()["version"] == 1
    assert spec.to_json()["groups"] == {"d": 2, "h[layer]": 3, "q[layer, h]": 4}
    assert PermutationSpec.from_json(spec.to_json()) == spec
    wrong = spec.identity() | {"q": np.zeros((2, 3, 4), int)}
    with pytest.raises(SpecError, match="group 'q': not a permutation for 0, 0, unit 1 is missing"):
        spec.check_perms(wrong)
    with pytest.raises(SpecError, match=r"group 'q' has shape \(4,\), expected \(2, 3, 4\)"):
        spec.check_perms(spec.identity() | {"q": np.arange(4)})
    with pytest.raises(SpecError, match="pass the spec if the group is indexed"):
        bayesin.compose(spec.identity(), spec.identity())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"format": NaN}', b"[" * 9999])
def test_files_that_are_no_spec_are_refused(tmp_path, content):
    path = tmp_path / "spec.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"spec\.json|not a permutation spec"):
        PermutationSpec.load(path)
    with pytest.raises(SpecError, match="cannot read"):
        PermutationSpec.load(tmp_path / "absent.json")


def test_stacks_fit_the_spec_of_one_member():
    stack = {path: np.stack([leaf] * 4) for path, leaf in PARAMS.items()}
    assert SPEC.check(PARAMS) == 0
    assert SPEC.check(stack) == 1
    with pytest.raises(SpecError, match="leading axes"):
        SPEC.check(stack | {"b0": PARAMS["b0"]})


def test_explain_lists_groups_and_reasons():
    def apply(p, x):
        h = jnp.cumsum(x @ p["w0"], -1) @ p["w1"]
        return jax.nn.softmax(h.reshape(2, 2, 3), 1).reshape(2, 6) @ p["w2"]

    found = explain(bayesin.discover(apply, weights(w0=(5, 4), w1=(4, 6), w2=(6, 3)), X))
    assert [(line.group, line.size, line.tensors) for line in found.groups] == [
        ("g0", 2, ("w1[1] = g0[g1] * g1", "w2[0] = g0[g1] * g1")),
        ("g1", 3, ("w1[1] = g0[g1] * g1", "w2[0] = g0[g1] * g1")),
    ]
    assert [(line.tensor, line.size, line.reason) for line in found.fixed] == [
        ("w0[0]", 5, "joined to the input"),
        ("w0[1]", 4, found.fixed[1].reason),
        ("w1[0]", 4, found.fixed[1].reason),
        ("w2[1]", 3, "output"),
    ]
    assert found.fixed[1].reason.startswith("`cumsum` depends on the order, equation ")


def test_every_fixed_factor_has_a_reason():
    def apply(p, x):
        table = p["table"][jnp.argmax(x, -1)]
        return jnp.sort(table @ p["w"]) + p["b"][None]

    params = weights(table=(5, 6), w=(6, 3), b=(3,), idle=(2, 2))
    assert all(line.reason for line in explain(bayesin.discover(apply, params, X)).fixed)
