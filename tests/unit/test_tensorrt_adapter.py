"""TensorRT's run half against stand-ins: a driver whose device works later, and an engine on it.

Nothing here proves that a GPU gives these numbers; it proves that the adapter asks for the
right things in the right order, waits for them, and gives everything back.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters import cuda_driver, tensorrt, tensorrt_api, tensorrt_build
from matrix_adapters.adapter import Unavailable, Unsupported
from matrix_adapters.cuda_driver import CudaError, Device
from matrix_adapters.protocol import ModelSpec, Task, TaskKind


class Driver:
    """libcuda with one device. Work in the stream is done only when somebody waits for it."""

    def __init__(self, devices: int = 1, fail: str = "") -> None:
        self.devices, self.fail = devices, fail
        self.memory: dict[int, Any] = {}
        self.stream: list[Callable[[], None]] = []
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.fail:
                return 100
            return int(getattr(self, f"_{name}", lambda *_: 0)(*arguments) or 0)

        return call

    def _cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = self.devices

    def _cuStreamCreate(self, out: Any, flags: Any) -> None:
        out._obj.value = 7

    def _cuDeviceGetName(self, out: Any, size: Any, device: Any) -> None:
        out.value = b"Fake GPU"

    def _cuDriverGetVersion(self, out: Any) -> None:
        out._obj.value = 13020

    def _cuDeviceGetAttribute(self, out: Any, attribute: Any, device: Any) -> None:
        out._obj.value = {75: 8, 76: 9}[attribute.value]

    def _cuGetErrorString(self, code: Any, out: Any) -> None:
        out._obj.value = b"no CUDA-capable device is detected"

    def _cuMemAlloc_v2(self, out: Any, size: Any) -> None:
        block = ctypes.create_string_buffer(size.value)
        out._obj.value = ctypes.addressof(block)
        self.memory[out._obj.value] = block

    def _cuMemFree_v2(self, address: Any) -> int:
        return 0 if self.memory.pop(address.value, None) else 1

    def _cuMemcpyHtoDAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> None:
        self.stream.append(lambda: ctypes.memmove(to.value, source.value, size.value) and None)

    def _cuMemcpyDtoHAsync_v2(self, to: Any, source: Any, size: Any, stream: Any) -> None:
        self.stream.append(lambda: ctypes.memmove(to.value, source.value, size.value) and None)

    def _cuStreamSynchronize(self, stream: Any) -> None:
        pending, self.stream = self.stream, []
        for work in pending:
            work()


class Context:
    """y = -x, in the driver's stream."""

    def __init__(self, driver: Driver, *, starts: bool = True, output: tuple[int, ...] | None = None) -> None:
        self.driver, self.starts, self.output = driver, starts, output
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: Any) -> bool:
        self.shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.output or self.shapes["x"]

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == 7
        if self.starts:
            self.driver.stream.append(self.work)
        return self.starts

    def work(self) -> None:
        count = int(np.prod(self.shapes["x"]))
        kind = ctypes.c_float * count
        source, target = kind.from_address(self.addresses["x"]), kind.from_address(self.addresses["y"])
        for i in range(count):
            target[i] = -source[i]


FLOAT = "FLOAT"


def fake_trt(context: Context | None) -> Any:
    """The names that the run half uses, around one context; None: the engine cannot be loaded."""
    engine = types.SimpleNamespace(
        num_io_tensors=2,
        get_tensor_name=lambda i: "xy"[i],
        get_tensor_mode=lambda name: "in" if name == "x" else "out",
        get_tensor_dtype=lambda name: FLOAT,
        create_execution_context=lambda: context,
    )
    flags: set[str] = {"TF32"}
    config = types.SimpleNamespace(
        set_flag=flags.add,
        clear_flag=flags.discard,
        get_flag=lambda flag: flag in flags,
        add_optimization_profile=lambda profile: 0,
    )
    return types.SimpleNamespace(
        __name__="tensorrt",
        __version__="11.4",
        nptype=lambda dtype: np.float32,
        TensorIOMode=types.SimpleNamespace(INPUT="in"),
        BuilderFlag=types.SimpleNamespace(TF32="TF32"),
        Runtime=lambda logger: types.SimpleNamespace(
            deserialize_cuda_engine=lambda data: engine if context else None
        ),
        config=config,
    )


def parsed(trt: Any, shape: tuple[int, ...] = (-1, 4)) -> tensorrt_build.Parsed:
    tensor = types.SimpleNamespace(name="x", shape=shape, dtype=FLOAT, is_shape_tensor=False)
    builder: Any = types.SimpleNamespace(
        max_threads=1,
        create_builder_config=lambda: trt.config,
        create_optimization_profile=lambda: types.SimpleNamespace(set_shape=lambda *shapes: None),
        build_serialized_network=lambda network, config: types.SimpleNamespace(nbytes=99),
    )
    network: Any = types.SimpleNamespace(num_inputs=1, num_layers=1, get_input=lambda i: tensor)
    logger = types.SimpleNamespace(errors=["Error Code 1: Cuda Runtime\nsecond line"])
    return tensorrt_build.Parsed(logger=logger, builder=builder, network=network, parser=None)  # type: ignore[arg-type]


def task(**fields: Any) -> Task:
    base = {"kind": TaskKind.MEASURE, "framework": "tensorrt", "adapter": "a", "device": "cuda"}
    return Task(**(base | fields))


def runner(
    driver: Driver, context: Context | None, outputs: tuple[str, ...] = (), **fields: Any
) -> tensorrt.TensorRtRunner:
    trt = fake_trt(context)
    model = ModelSpec(name="m", format="onnx", task="onnx", outputs=outputs)
    return tensorrt.TensorRtRunner(trt, parsed(trt), Device(0, driver), model, task(**fields))


X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_results_are_there_after_sync_and_not_before() -> None:
    driver = Driver()
    run = runner(driver, Context(driver))
    feed = run.prepare({"x": X})
    assert run.compile(feed) is True
    outputs = run.run(feed)
    assert len(driver.stream) == 3  # copy in, compute, copy out: all still to be done
    run.sync()
    np.testing.assert_array_equal(run.fetch(outputs)["y"], -X)


def test_results_of_a_call_survive_the_next_one() -> None:
    driver = Driver()
    run = runner(driver, Context(driver))
    run.compile(run.prepare({"x": X}))
    first = run.run({"x": X})
    run.sync()
    run.run({"x": X + 1})
    run.sync()
    np.testing.assert_array_equal(first["y"], -X)


def test_buffers_live_until_sync_even_when_the_caller_drops_the_result() -> None:
    driver = Driver()
    run = runner(driver, Context(driver))
    run.compile(run.prepare({"x": X}))
    run.run({"x": X})
    assert run._pending["y"].shape == (2, 4)
    run.sync()
    np.testing.assert_array_equal(run._pending["y"], -X)


def test_effective_is_what_builder_and_driver_say() -> None:
    driver = Driver()
    run = runner(driver, Context(driver), math_mode="fp32", threads=2)
    run.compile(run.prepare({"x": X}))
    effective = run.effective()
    assert effective["device"] == "cuda:0"
    assert effective["device_name"] == "Fake GPU"
    assert effective["compute_capability"] == "8.9"
    assert effective["cuda_driver"] == "13.2"
    assert effective["math_mode"] == "fp32"  # TF32 is on unless it is cleared
    assert effective["threads"] == 2
    assert effective["profile"] == {"x": [[2, 4], [2, 4], [2, 4]]}


def test_tf32_stays_on_where_it_was_asked() -> None:
    driver = Driver()
    run = runner(driver, Context(driver), math_mode="tf32")
    run.compile(run.prepare({"x": X}))
    assert run.effective()["math_mode"] == "tf32"


def test_close_gives_all_device_memory_back() -> None:
    driver = Driver()
    run = runner(driver, Context(driver))
    run.compile(run.prepare({"x": X}))
    assert driver.memory
    run.close()
    assert not driver.memory
    assert driver.calls[-2:] == ["cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"]
    run.close()  # a second time is harmless


def test_an_engine_that_cannot_be_loaded_is_unavailable_with_the_logged_reason() -> None:
    run = runner(Driver(), None)
    with pytest.raises(Unavailable, match=r"cannot be loaded here: Error Code 1: Cuda Runtime$"):
        run.compile(run.prepare({"x": X}))


def test_a_call_that_does_not_start_is_an_error() -> None:
    driver = Driver()
    run = runner(driver, Context(driver, starts=False))
    run.compile(run.prepare({"x": X}))
    with pytest.raises(RuntimeError, match="did not start"):
        run.run({"x": X})


def test_an_output_whose_shape_depends_on_data_is_unsupported() -> None:
    driver = Driver()
    run = runner(driver, Context(driver, output=(-1, 4)))
    with pytest.raises(Unsupported, match="'y' has a shape that depends on the data"):
        run.compile(run.prepare({"x": X}))


def test_an_output_that_the_engine_lacks_is_named() -> None:
    driver = Driver()
    run = runner(driver, Context(driver), outputs=("z",))
    with pytest.raises(ValueError, match="no output 'z'"):
        run.compile(run.prepare({"x": X}))


def test_running_before_compiling_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="compile first"):
        runner(Driver(), None).run({"x": X})


@pytest.mark.parametrize(
    ("feed", "words"),
    [({"z": X}, "no array for input 'x'"), ({"x": X.astype(np.float64)}, "float32 in the file")],
    ids=["missing", "dtype"],
)
def test_a_feed_that_does_not_fit_names_the_input(feed: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        runner(Driver(), None).prepare(feed)


# --- operator cases -----------------------------------------------------------------------


class CopyBits(Context):
    """y = x, in elements of two bytes."""

    def work(self) -> None:
        count = 2 * int(np.prod(self.shapes["x"]))
        ctypes.memmove(self.addresses["y"], self.addresses["x"], count)


def operator_runner(driver: Driver, context: Context, dtype: str) -> tensorrt.TensorRtRunner:
    trt = fake_trt(context)

    def nptype(asked: Any) -> Any:
        if asked == "DataType.BF16":
            raise TypeError("NumPy has no bfloat16")
        return np.float32

    trt.nptype = nptype
    engine = trt.Runtime(None).deserialize_cuda_engine(b"")
    engine.get_tensor_dtype = lambda name: dtype
    made = parsed(trt, (-1, -1))
    made.inputs[0].dtype = dtype
    model = ModelSpec(name="Relu/basic", format="operator", task="operator", outputs=("y",))
    return tensorrt.TensorRtRunner(trt, made, Device(0, driver), model, task(precision="bf16"))


def test_bfloat16_goes_in_as_bits_and_comes_out_widened() -> None:
    driver = Driver()
    run = operator_runner(driver, CopyBits(driver), "DataType.BF16")
    bits = np.array([[0x3F80, 0xC000], [0x7F80, 0x0001]], np.uint16)  # 1, -2, inf, the least subnormal
    feed = run.prepare({"x": np.asfortranarray(bits)})
    run.compile(feed)
    outputs = run.run(feed)
    run.sync()
    np.testing.assert_array_equal(
        run.fetch(outputs)["y"], np.array([[1, -2], [np.inf, 2.0**-133]], np.float32)
    )
    assert run.effective()["output_dtypes"] == {"y": "bfloat16"}
    assert run.effective()["precision"] == "bf16"


def test_the_same_bits_are_refused_in_a_model() -> None:
    driver = Driver()
    trt = fake_trt(CopyBits(driver))

    def nptype(asked: Any) -> Any:
        raise TypeError(asked)

    trt.nptype = nptype
    model = ModelSpec(name="m", format="onnx", task="onnx")
    with pytest.raises(Unsupported, match="only tensors of types that NumPy has"):
        tensorrt.TensorRtRunner(trt, parsed(trt), Device(0, driver), model, task())


def test_an_empty_tensor_is_unsupported() -> None:
    driver = Driver()
    run = operator_runner(driver, Context(driver), "FLOAT")
    with pytest.raises(Unsupported, match="'x' is empty"):
        run.compile(run.prepare({"x": np.zeros((0, 4), np.float32)}))


def test_one_case_closing_leaves_the_next_its_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver()
    monkeypatch.setattr(tensorrt, "Device", lambda index: Device(index, driver))
    trt = fake_trt(Context(driver))
    adapter = tensorrt.Adapter(task(precision="bf16"))
    adapter._trt, adapter._device = trt, Device(0, driver)
    monkeypatch.setattr(tensorrt.building, "parse", lambda *_: parsed(trt))
    model = ModelSpec(name="Neg/basic", format="operator", task="operator", outputs=("y",))
    for _ in range(2):
        run = adapter.load(model, {"operator": tmp_path})
        feed = run.prepare({"x": X})
        run.compile(feed)
        outputs = run.run(feed)
        run.sync()
        np.testing.assert_array_equal(run.fetch(outputs)["y"], -X)
        assert run.effective()["output_dtypes"] == {"y": "float32"}
        run.close()
    assert not driver.memory


# --- the driver ---------------------------------------------------------------------------


def test_an_error_code_becomes_the_drivers_own_words() -> None:
    with pytest.raises(CudaError, match="cuInit: error 100, no CUDA-capable device is detected"):
        Device(0, Driver(fail="cuInit"))


def test_a_device_that_is_not_there_is_counted() -> None:
    with pytest.raises(CudaError, match=r"cuda:1 asked, the driver sees 1 device"):
        Device(1, Driver(devices=1))


def test_no_driver_at_all_says_which_libraries_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_LIBRARIES", ("libnotthere.so.1",))
    with pytest.raises(CudaError, match=r"no NVIDIA driver: libnotthere\.so\.1"):
        Device(0)


# --- the module ---------------------------------------------------------------------------


def test_names_that_a_module_lacks_are_listed() -> None:
    lacking = tensorrt_api.missing(types.SimpleNamespace(Builder=types.SimpleNamespace(max_threads=1)))
    assert "Builder.create_network" in lacking
    assert "Builder.max_threads" not in lacking
    assert "Runtime.deserialize_cuda_engine" in lacking
    assert "BuilderFlag.TF32" in lacking


def test_neither_module_installed_says_so_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_api, "MODULES", ("no_trt_a", "no_trt_b"))
    with pytest.raises(ImportError, match=r"no_trt_a: .*; no_trt_b: "):
        tensorrt_api.import_module()
