"""Refusal sentences of attention, as `refusal_sentences.py` has those of the rest."""

from __future__ import annotations

from refusal_modules import Case, attention

_TWO_DIMENSIONS = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_contracting_dims={2,3}"
_FIVE = "lhs_batch_dims={0,1,2,3,4}, rhs_batch_dims={0,1,2,3,4}"
_PAIRS = "2,2,2,2,2"

ATTENTIONS = (
    Case(
        "attention",
        "attention-step",
        "scores are kept where a mask in memory is false, and the kernel keeps them where it is true",
        attention(
            more="m = pred[2,9,11] parameter(3)\nno = f32[] constant(-1e9)",
            steps="lost = f32[2,9,11] broadcast(no), dimensions={}\nt = f32[2,9,11] select(m, lost, s)",
            last="t",
        ),
    ),
    Case(
        "attention",
        "attention-step",
        "%s.2 is read, and computed from the scores",
        attention(steps="t = f32[2,9,11] add(s, s)", last="t"),
    ),
    Case(
        "attention",
        "attention-softmax",
        "nothing divides %y by the sum over all keys",
        attention(weights="bitcast(op)"),
    ),
    Case(
        "attention",
        "layout-unsupported",
        "the scores' elements change places",
        attention(
            q="f32[2,4,8]",
            k="f32[2,6,8]",
            v="f32[2,3,8]",
            y="f32[2,8,8]",
            computed="2,4,6",
            scores="2,8,3",
            steps="n = f32[2,4,6]{1,2,0} negate(s)\nt = f32[2,8,3] bitcast(n)",
            last="t",
        ),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "the keys' dimensions do not lie behind one another in %v",
        attention(
            k="f32[2,3,4,8]{3,1,2,0}",
            v="f32[2,3,4,8]",
            scores="2,9,3,4",
            keys=(2, 3),
            first="lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={3}",
            second="lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2,3}, rhs_contracting_dims={1,2}",
        ),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "the heads' dimensions do not lie behind one another in %y",
        attention(v="f32[2,11,3,4]", y="f32[2,9,3,4]{2,3,1,0}"),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "%k has several dimensions there",
        attention(q="f32[2,9,3,4]", k="f32[2,11,3,4]{2,3,1,0}", first=_TWO_DIMENSIONS),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "%s.2: its operands share the dimensions that the second product sums over",
        attention(
            q="f32[2,11,9,8]",
            k="f32[2,11,8]",
            scores="2,11,9",
            keys=(1,),
            first="lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
            second="lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ),
    ),
    Case(
        "attention",
        "dot-dimensions",
        "%s.2: its dimensions cannot be told apart behind it",
        attention(
            q="f32[2,6,8]",
            k="f32[2,4,8]",
            v="f32[2,3,8]",
            y="f32[2,8,8]",
            computed="2,6,4",
            scores="2,8,3",
            steps="t = f32[2,8,3] bitcast(s)",
            last="t",
        ),
    ),
    Case(
        "attention",
        "rank-unsupported",
        "5 batch dimensions",
        attention(
            f"f32[{_PAIRS},9,8]{{6,5,0,1,2,3,4}}",
            f"f32[{_PAIRS},11,8]",
            f"f32[{_PAIRS},11,8]",
            f"f32[{_PAIRS},9,8]",
            scores=f"{_PAIRS},9,11",
            keys=(6,),
            first=f"{_FIVE}, lhs_contracting_dims={{6}}, rhs_contracting_dims={{6}}",
            second=f"{_FIVE}, lhs_contracting_dims={{6}}, rhs_contracting_dims={{5}}",
        ),
    ),
)
