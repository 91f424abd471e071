#include "common/epilogue.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/failure.h"

namespace hlo_dispatch {

namespace {

constexpr int kMaxPostOps = 32;

template <typename Body>
void Loop(float* y, const float* other, int64_t step, int64_t count, Body body) {
  if (step == 0) {
    const float one = *other;
    for (int64_t i = 0; i < count; ++i) y[i] = body(y[i], one);
  } else if (step == 1) {
    for (int64_t i = 0; i < count; ++i) y[i] = body(y[i], other[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = body(y[i], other[i * step]);
  }
}

struct Add {
  float operator()(float y, float other) const { return y + other; }
};
struct Subtract {
  float operator()(float y, float other) const { return y - other; }
};
struct Multiply {
  float operator()(float y, float other) const { return y * other; }
};
struct Divide {
  float operator()(float y, float other) const { return y / other; }
};
// Of NaN and a number NaN, as XLA has it.
struct Maximum {
  float operator()(float y, float other) const { return y > other || y != y ? y : other; }
};
struct Minimum {
  float operator()(float y, float other) const { return y < other || y != y ? y : other; }
};

// 1 where it is true.
template <template <typename> class Compare>
struct Is {
  float operator()(float y, float other) const { return Compare<float>()(y, other) ? 1.0f : 0.0f; }
};

template <typename Body>
void Combined(float* y, const float* other, int64_t step, int64_t count) {
  Loop(y, other, step, count, Body());
}

}  // namespace

Epilogue::Combine Epilogue::FindCombine(const std::string& algorithm, const std::string& role) {
  static const auto* known = new std::map<std::string, Combine>{
      {"add", Combined<Add>},
      {"sub", Combined<Subtract>},
      {"mul", Combined<Multiply>},
      {"div", Combined<Divide>},
      {"max", Combined<Maximum>},
      {"min", Combined<Minimum>},
      {"ge", Combined<Is<std::greater_equal>>},
      {"gt", Combined<Is<std::greater>>},
      {"le", Combined<Is<std::less_equal>>},
      {"lt", Combined<Is<std::less>>},
      {"eq", Combined<Is<std::equal_to>>},
      {"ne", Combined<Is<std::not_equal_to>>},
  };
  return Named(*known, algorithm, role + ".algorithm");
}

Epilogue::Epilogue(const Provider& provider, const Attributes& attributes, const StridedArray& destination,
                   const EpilogueOwner& owner) {
  const std::vector<int64_t>& dims = destination.dims;
  if (attributes.Has("bias_type")) {
    StridedArray bias{"bias", ElementTypeFromName(attributes.Text("bias_type"), "bias_type"),
                      std::vector<int64_t>(dims.size(), 1), std::vector<int64_t>(dims.size(), 1)};
    bias.dims.back() = dims.back();
    AddOperand(std::move(bias), dims, Combined<Add>, owner);
  }
  const int length = CountPostOps(attributes, kMaxPostOps, owner.name);
  for (int i = 0; i < length; ++i) {
    const std::string role = "post_op_" + std::to_string(i);
    const std::unique_ptr<Attributes> post_op = attributes.Nested(role);
    const std::string kind = post_op->Text("kind");
    // A library's post-op: results here are written, never added to.
    if (kind == "sum") Unsupported(role + ".kind: " + owner.name + " adds nothing to its result in place");
    const std::string algorithm = post_op->Text("algorithm");
    if (kind == "eltwise") {
      steps_.push_back(
          {FindActivation(provider, algorithm, post_op->Real("alpha"), post_op->Real("beta"), role), nullptr, 0});
    } else if (kind == "binary") {
      StridedArray operand = ReadNestedArray(*post_op, role);
      CheckRepeats(operand, dims);
      AddOperand(std::move(operand), dims, FindCombine(algorithm, role), owner);
    } else {
      Invalid(role + ".kind: expected eltwise or binary, got '" + kind + "'");
    }
  }
}

void Epilogue::AddOperand(StridedArray operand, const std::vector<int64_t>& dims, Combine combine,
                          const EpilogueOwner& owner) {
  if (operand.type != ElementType::kF32 && !owner.widens) {
    Unsupported(operand.role + ": expected f32, which is all that " + owner.name + " is given, got " +
                ElementTypeName(operand.type));
  }
  steps_.push_back({nullptr, combine, operands_.size()});
  matrices_.push_back(RowsAndColumns::Of(operand, dims));
  operands_.push_back(std::move(operand));
}

void Epilogue::Apply(float* values, const RowsAndColumns& result, const Tile& tile,
                     const std::vector<const float*>& operands) const {
  const bool by_row = result.goes_by_row();
  const int64_t begin = by_row ? tile.row_begin : tile.column_begin;
  const int64_t end = by_row ? tile.row_end : tile.column_end;
  const int64_t count = by_row ? tile.column_end - tile.column_begin : tile.row_end - tile.row_begin;
  for (int64_t line = begin; line < end; ++line) {
    const int64_t row = by_row ? line : tile.row_begin;
    const int64_t column = by_row ? tile.column_begin : line;
    float* y = values + row * result.row_stride + column * result.column_stride;
    for (const Step& step : steps_) {
      if (step.combine == nullptr) {
        step.activation(y, count);
      } else {
        const RowsAndColumns& other = matrices_[step.operand];
        step.combine(y, other.At(operands[step.operand], row, column), by_row ? other.column_stride : other.row_stride,
                     count);
      }
    }
  }
}

}  // namespace hlo_dispatch
