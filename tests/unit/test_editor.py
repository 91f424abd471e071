"""Editor: insertion, replacement, erasure and dead code of one computation; clones; kernel calls."""

from __future__ import annotations

import pytest

from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.builder import InstructionBuilder, clone_computation
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.kernel_call import KernelCall, operand_roles
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.ir.verify import verify
from matching import EDITED, parsed


@pytest.fixture
def editor() -> Editor:
    module = parsed(EDITED)
    return Editor(module, module.entry)


def named(editor: Editor, name: str) -> int:
    return next(identifier for identifier, proto in editor.instructions.items() if proto.name == name)


def names(module: Module) -> list[str]:
    return [proto.name for proto in module.entry.instructions]


BEFORE = [proto.name for proto in parsed(EDITED).entry.instructions]


def test_a_draft_that_is_given_up_changes_nothing(editor: Editor) -> None:
    before = editor.module.to_bytes()
    editor.replace_all_uses_with(named(editor, "read"), named(editor, "x"))
    editor.add_control_dependency(named(editor, "late"), named(editor, "effect"))
    editor.erase(named(editor, "read"))
    assert editor.module.to_bytes() == before


def test_instructions_are_inserted_where_a_builder_stands(editor: Editor) -> None:
    shape, x = row_major("f32", (4,)), named(editor, "x")
    editor.after(x).make("copy", shape, x, stem="second")
    editor.before(x).make("iota", shape, stem="zeroth").dimensions.append(0)
    editor.last().make("copy", shape, x, stem="end")
    editor.first().make("iota", shape, stem="begin").dimensions.append(0)
    commit(editor.module, [editor])
    place = BEFORE.index("x")
    assert names(editor.module) == ["begin", *BEFORE[:place], "zeroth", "x", "second", *BEFORE[place + 1 :], "end"]


def test_all_uses_are_replaced(editor: Editor) -> None:
    x, read = named(editor, "x"), named(editor, "read")
    copy = editor.after(x).make("copy", row_major("f32", (4,)), x)
    assert set(editor.users(x)) == {read, copy.id, *(named(editor, name) for name in ("dropped", "effect", "late"))}
    editor.replace_all_uses_with(x, copy.id)
    assert editor.users(x) == [copy.id]
    assert read in editor.users(copy.id)
    assert editor.rewired == {named(editor, name) for name in ("read", "dropped", "effect", "late")}
    editor.replace_all_uses_with(editor.root_id, x)
    assert editor.root_id == x


def test_dead_code(editor: Editor) -> None:
    """Only dead values are dropped; parameters and side effects stay, and what something waits for."""
    editor.remove_dead_code()
    commit(editor.module, [editor])
    assert names(editor.module) == [name for name in BEFORE if name != "renamed"]


def test_dead_code_that_a_pass_names(editor: Editor) -> None:
    editor.remove_dead_code({named(editor, name) for name in ("unread", "read", "effect")})
    commit(editor.module, [editor])
    assert names(editor.module) == [name for name in BEFORE if name not in ("unread", "effect", "renamed")]


def test_only_what_the_root_depends_on_is_kept(editor: Editor) -> None:
    editor.root_id = named(editor, "read")
    editor.keep_reachable_from_root()
    commit(editor.module, [editor])
    assert names(editor.module) == ["x", "read"]


def test_control_dependencies_are_redirected(editor: Editor) -> None:
    dropped, effect, late = (named(editor, name) for name in ("dropped", "effect", "late"))
    editor.redirect_control_dependencies({dropped: effect})
    editor.erase(named(editor, "renamed"))
    editor.erase(dropped)
    commit(editor.module, [editor])
    assert names(editor.module) == [name for name in BEFORE if name not in ("dropped", "renamed")]
    assert editor.instructions[late].control_predecessor_ids[:] == [effect]


def test_computations_that_nothing_calls_are_dropped(editor: Editor) -> None:
    module = editor.module
    builder = InstructionBuilder.of_new_computation(module, "inner", module.entry)
    parameter = builder.parameter(0, row_major("f32", (4,)))
    editor.computations.append(builder.finished(builder.make("sine", row_major("f32", (4,)), parameter.id).id))
    x, read = named(editor, "x"), named(editor, "read")
    fusion = editor.before(read).fusion(builder.computation, (x,), row_major("f32", (4,)))
    editor.replace_all_uses_with(read, fusion.id)
    editor.remove_dead_code()
    assert commit(module, [editor]) == {module.entry.id, builder.computation.id}
    assert [computation.name for computation in module.proto.computations] == ["inner", "main"]
    verify(module)


def test_clones_have_computations_of_their_own(editor: Editor) -> None:
    read = editor.instructions[named(editor, "read")]
    ids = {named(editor, "x"): named(editor, "x")}
    editor.computations += editor.last().clone_all([read], ids)
    clone = editor.instructions[ids[read.id]]
    assert clone.called_computation_ids[0] != read.called_computation_ids[0]
    commit(editor.module, [editor])
    assert names(editor.module) == [*BEFORE, "read.1"]


def test_ids_and_names_are_nobodys(editor: Editor) -> None:
    module = editor.module
    (clone,) = clone_computation(
        module, module.computations[editor.instructions[named(editor, "read")].called_computation_ids[0]]
    )
    assert clone.id not in module.computations
    assert [i.id >> 32 for i in clone.instructions] == [clone.id, clone.id]
    fresh = [module.fresh_id(module.entry) for _ in range(3)]
    assert len({*fresh, *editor.instructions}) == 3 + len(editor.instructions)


CALL = KernelCall("hlo_dispatch.onednn.matmul", (1, 2), Attributes({"scratch": 64}), (row_major("f32", (4,)),), 64)


@pytest.mark.parametrize(
    "call",
    [
        CALL,
        KernelCall("custom", (1,), Attributes({"beta": 2.5}), (row_major("f32", (4,)),)),
        KernelCall("custom", (), Attributes({}), (row_major("f32", (4,)), row_major("s32", ()))),
    ],
)
def test_a_kernel_call_is_read_as_it_was_written(editor: Editor, call: KernelCall) -> None:
    made = editor.last().kernel_call(call)
    assert KernelCall.read(made) == call


def test_an_instruction_becomes_another_call(editor: Editor) -> None:
    x = named(editor, "x")
    made = editor.last().kernel_call(KernelCall(CALL.target, (x, x), CALL.attributes, CALL.results, CALL.scratch))
    call = KernelCall.read(made).with_attributes({"scratch": 128})
    editor.write(made.id, call)
    assert made.shape.tuple_shapes[1].dimensions[:] == [128]
    assert made.backend_config == b"{scratch = 128 : i64}"


def test_roles_of_operands() -> None:
    sum_, binary = {"kind": "sum"}, {"kind": "binary"}
    attributes = {"src_type": "f32", "weights_type": "s8", "dst_type": "f32", "bias_type": "f32"}
    assert operand_roles({"src_type": "f32", "post_op_0": binary}) == ["src", "post_op_0"]
    post_ops = {"post_op_0": sum_, "post_op_1": binary}
    assert operand_roles(attributes | post_ops) == ["src", "weights", "bias", "post_op_1"]
    quantized = attributes | {"scales_type": "f32", "zeros_type": "s8"}
    assert operand_roles(quantized | post_ops) == ["src", "weights", "scales", "zeros", "bias", "post_op_1"]


def test_one_operand_is_replaced_where_another_one_is_the_same(editor: Editor) -> None:
    root, x, read, late = (named(editor, name) for name in ("t", "x", "read", "late"))
    assert editor.users(late) == [root]
    editor.set_operand(root, 0, late)
    assert editor.root.operand_ids[:] == [late, late]
    assert editor.users(read) == []
    editor.set_operand(root, 1, x)
    assert (editor.users(late), editor.users(x)[-1]) == ([root], root)
    editor.replace_all_uses_with(late, read)
    assert editor.root.operand_ids[:] == [read, x]
    assert (editor.users(late), editor.users(read)) == ([], [root])
    assert root in editor.rewired


def test_users_of_what_was_moved_down_follow_it(editor: Editor) -> None:
    read, last = named(editor, "read"), list(editor.instructions)[-1]
    moved = editor.mutable(read)
    editor.erase(read)
    editor.insert(moved, last)
    commit(editor.module, [editor])
    verify(editor.module)
    assert names(editor.module).index("read") < names(editor.module).index("t")


def test_dead_code_that_live_code_waits_for_stays(editor: Editor) -> None:
    dropped, late = named(editor, "dropped"), named(editor, "late")
    copies = [editor.after(dropped).make("slice", row_major("f32", (4,)), named(editor, "x")).id for _ in range(2)]
    editor.add_control_dependency(late, copies[0])
    editor.add_control_dependency(copies[0], copies[1])
    dead = editor.after(dropped).make("slice", row_major("f32", (4,)), named(editor, "x")).id
    editor.remove_dead_code()
    assert editor.instructions.keys() >= {*copies, late}
    assert dead not in editor.instructions
