// A library of custom operators for ONNX Runtime that is compiled without its headers, which its wheels
// lack: a Relu of float, and with -DSLOPE=... one that leaks.
//
// What is written out here is ONNX Runtime's binary interface, which releases only add to: the table of
// functions of OrtApi by position, and the head of OrtCustomOp as version 11 of the interface knows it.
#include <cstddef>
#include <cstdint>

#ifndef SLOPE
#define SLOPE 0.0f
#endif

namespace {

// positions in OrtApi
enum {
  kCreateCustomOpDomain = 26,
  kCustomOpDomainAdd = 27,
  kAddCustomOpDomain = 28,
  kGetTensorMutableData = 51,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorShapeElementCount = 64,
  kGetTensorTypeAndShape = 65,
  kKernelContextGetInput = 90,
  kKernelContextGetOutput = 91,
  kReleaseTensorTypeAndShapeInfo = 99,
};
constexpr uint32_t kVersion = 11;
constexpr int kFloat = 1;  // ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
constexpr size_t kMostAxes = 16;

using Api = void* const*;
using Status = void*;

struct ApiBase {
  Api (*get)(uint32_t);
  const char* (*version)();
};

template <typename... Arguments>
Status call(Api api, int position, Arguments... arguments) {
  return reinterpret_cast<Status (*)(Arguments...)>(api[position])(arguments...);
}

struct CustomOperator {
  uint32_t version;
  void* (*create)(const CustomOperator*, Api, const void*);
  const char* (*name)(const CustomOperator*);
  const char* (*provider)(const CustomOperator*);
  int (*input_type)(const CustomOperator*, size_t);
  size_t (*inputs)(const CustomOperator*);
  int (*output_type)(const CustomOperator*, size_t);
  size_t (*outputs)(const CustomOperator*);
  void (*compute)(void*, void*);
  void (*destroy)(void*);
  int (*input_kind)(const CustomOperator*, size_t);
  int (*output_kind)(const CustomOperator*, size_t);
};

void compute(void* kernel, void* context) {
  Api api = static_cast<Api>(kernel);
  const void* x = nullptr;
  call(api, kKernelContextGetInput, static_cast<const void*>(context), size_t{0}, &x);
  void* info = nullptr;
  call(api, kGetTensorTypeAndShape, x, &info);
  size_t axes = 0, count = 0;
  int64_t shape[kMostAxes] = {};
  call(api, kGetDimensionsCount, static_cast<const void*>(info), &axes);
  if (axes > kMostAxes) axes = kMostAxes;
  call(api, kGetDimensions, static_cast<const void*>(info), static_cast<int64_t*>(shape), axes);
  call(api, kGetTensorShapeElementCount, static_cast<const void*>(info), &count);
  reinterpret_cast<void (*)(void*)>(api[kReleaseTensorTypeAndShapeInfo])(info);
  void* y = nullptr;
  call(api, kKernelContextGetOutput, context, size_t{0}, static_cast<const int64_t*>(shape), axes, &y);
  void *from = nullptr, *to = nullptr;
  call(api, kGetTensorMutableData, const_cast<void*>(x), &from);
  call(api, kGetTensorMutableData, y, &to);
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<const float*>(from)[i];
    const float below = SLOPE > 0 ? value * SLOPE : 0;  // and not 0 times -infinity
    static_cast<float*>(to)[i] = value < 0 ? below : value;  // NaN is not below 0, and stays
  }
}

const CustomOperator kRelu = {
    kVersion,
    [](const CustomOperator*, Api api, const void*) -> void* { return const_cast<void**>(api); },
    [](const CustomOperator*) { return "Relu"; },
    [](const CustomOperator*) -> const char* { return nullptr; },  // the CPU's
    [](const CustomOperator*, size_t) { return kFloat; },
    [](const CustomOperator*) { return size_t{1}; },
    [](const CustomOperator*, size_t) { return kFloat; },
    [](const CustomOperator*) { return size_t{1}; },
    compute,
    [](void*) {},
    [](const CustomOperator*, size_t) { return 0; },  // required
    [](const CustomOperator*, size_t) { return 0; },
};

}  // namespace

extern "C" Status RegisterCustomOps(void* options, const ApiBase* base) {
  Api api = base->get(kVersion);
  static void* domain = nullptr;  // lives as long as the library: sessions refer to it
  if (domain == nullptr) {
    if (Status failed = call(api, kCreateCustomOpDomain, "of.mine", &domain)) return failed;
    if (Status failed = call(api, kCustomOpDomainAdd, domain, &kRelu)) return failed;
  }
  return call(api, kAddCustomOpDomain, options, domain);
}
