"""The way to the GPU, with a driver that only listens."""

import contextlib
import ctypes
import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fragmenta as fm
import fragmenta.torch as ft
from fragmenta import ptx
from fragmenta.cuda.tools.compiler import find, to_ptx
from fragmenta.hopper.kernels import kept, launch, prepare, tuning
from fragmenta.hopper.kernels.grouping import choose_grouped
from fragmenta.hopper.kernels.source import TARGET
from fragmenta.hopper.torch import operators, request, running, training
from fragmenta.hopper.torch import tuning as searching
from fragmenta.hopper.torch.grouping import grouped_on_cuda
from fragmenta.kernels import Tile


class Listener:
    """A driver that notes launches: grid, threads, and m, n and stages."""

    def __init__(self):
        self.launches = []
        self.early = []
        self.capturing = True

    def cuLaunchKernel(self, function, *given):
        *sizes, shared, _, addresses, _ = given
        self._note(function, sizes[0], sizes[3], shared, addresses)
        self.early.append(False)
        return (0,)

    def cuLaunchKernelEx(self, config, function, addresses, _):
        sizes = config.gridDimX, config.blockDimX, config.sharedMemBytes
        self._note(function, *sizes, addresses)
        (attribute,) = config.attrs
        assert (attribute.id, config.numAttrs) == ("serialization", 1)
        self.early.append(attribute.value.programmaticStreamSerializationAllowed == 1)
        return (0,)

    def _note(self, function, blocks, threads, shared, addresses):
        pointers = (ctypes.c_void_p * 8).from_address(addresses)
        numbers = [ctypes.c_int.from_address(each).value for each in pointers[5:]]
        self.launches.append((function, blocks, threads, shared, numbers))

    CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="serialization"
    )

    def CUlaunchAttribute(self):
        return SimpleNamespace(value=SimpleNamespace())

    def cuCtxGetCurrent(self):
        return 0, 1234


@pytest.fixture
def driver(monkeypatch):
    listener = Listener()

    def tensor_map(name, matrix, *box):
        launch.check_matrix(name, matrix)
        found = launch._Map()
        found.address = ctypes.addressof(found)
        return found

    monkeypatch.setattr(launch, "_driver", lambda: listener)
    monkeypatch.setattr(launch, "_function", lambda kernel, context: kernel)
    monkeypatch.setattr(launch, "_tensor_map", tensor_map)
    monkeypatch.setattr(launch, "processors", lambda: 132)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=None: "a card")
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False
    )
    monkeypatch.setattr(
        torch._C,
        "_cuda_isCurrentStreamCapturing",
        lambda: listener.capturing,
        raising=False,
    )
    monkeypatch.setattr(running, "SETTLED", running.Settled())
    launch._early_config.cache_clear()
    running.planned_on.cache_clear()
    running.forget()
    yield listener
    launch._early_config.cache_clear()
    running.planned_on.cache_clear()
    running.forget()


@pytest.fixture
def weight():
    return ft.compress(torch.randn(256, 192).bfloat16())


def linear(x, weight, bias=None, tile=()):
    """The CUDA implementation itself."""
    given = (None, None, None, bias, False, list(tile))
    return operators._OPERATORS["sparse_linear"].cuda(
        x, weight.data, weight.element_type, weight.shape[0], torch.bfloat16, *given
    )


def test_one_launch_for_one_product(driver, weight):
    y = linear(torch.randn(2, 3, 192).bfloat16(), weight, torch.zeros(256))
    assert y.shape == (2, 3, 256)
    ((kernel, blocks, threads, shared, numbers),) = driver.launches
    assert str(kernel) == "bf16 bf16 sparse scaled transposed 64x8"
    assert (blocks, threads, shared) == (4, 256, kernel.shared_bytes)
    assert numbers == [256, 6, 3]


def test_the_tile_that_is_asked_for(driver, weight):
    linear(torch.ones(6, 192).bfloat16(), weight, tile=(128, 64, 2, 0, 1))
    assert driver.launches[0][0].tile == Tile(128, 64, 2)
    assert driver.launches[0][1] == 2
    linear(torch.ones(6, 192).bfloat16(), weight, tile=(64, 128, 1, 0, 2))
    assert driver.launches[1][0].tile == Tile(64, 128, split=2)
    assert driver.launches[1][1] == 8


def test_a_launch_starts_early_if_its_weight_was_read_before(driver, weight):
    x = torch.ones(6, 192).bfloat16()
    other = ft.compress(torch.randn(256, 192).bfloat16())
    for _ in range(2):
        linear(x, weight)
    linear(x, other)
    weight.data.add_(0)  # whoever writes it may be the kernel before
    for _ in range(2):
        linear(x, weight)
    assert driver.early == [False, True, False, False, True]


def test_a_launch_starts_early_only_in_a_graph(driver, weight):
    """Elsewhere the host is slower than small kernels."""
    x = torch.ones(6, 192).bfloat16()
    for driver.capturing in (False, False, True, False):
        linear(x, weight)
    assert driver.early == [False, False, True, False]


def test_a_dense_product_never_starts_early(driver):
    a, b = (torch.ones(rows, 64, dtype=torch.int8) for rows in (65, 3))
    rest = (torch.int32, None, None, None, None, False, False, [])
    for _ in range(2):
        operators._OPERATORS["dense_mm"].cuda(a, b, *rest)
    assert driver.early == [False, False]


@pytest.mark.parametrize("name", ["dense_mm", "binary_mm"])
def test_the_others(driver, name):
    if name == "binary_mm":
        a, b = (torch.ones(rows, 24, dtype=torch.uint8) for rows in (65, 3))
        d = operators._OPERATORS[name].cuda(a, b, False, [])
    else:
        a, b = (torch.ones(rows, 24, dtype=torch.int8) for rows in (65, 3))
        rest = (torch.int32, None, None, None, None, False, False, [])
        d = operators._OPERATORS[name].cuda(a, b, *rest)
    assert d.shape == (65, 3)
    assert d.is_contiguous()
    assert driver.launches[0][4] == [65, 3, 1]


@pytest.mark.parametrize(
    "name, read",
    [
        ("sparse_mm", request.sparse_product),
        ("sparse_linear", request.linear_product),
        ("dense_mm", request.dense_product),
    ],
)
def test_the_record_takes_the_arguments_in_the_order_of_the_schema(name, read):
    schema = getattr(torch.ops.fragmenta, name).default._schema
    assert [each.name for each in schema.arguments] == [
        *inspect.signature(read).parameters
    ]


def test_each_tensor_of_the_epilogue_has_its_own_name():
    given = {name: torch.ones(1) for name in request.EPILOGUE}
    matrix = torch.ones(1, 16, dtype=torch.int8)
    kinds = (torch.float32, *given.values(), False, False, [])
    dense = request.dense_product(matrix, matrix, *kinds)
    sparse = request.sparse_product(matrix, matrix, "s8", 1, *kinds)
    layer = request.linear_product(
        matrix, matrix, "s8", 1, torch.float32, *given.values(), False, []
    )
    for product in (dense, sparse, layer):
        assert list(product.epilogue) == list(given)
        assert all(product.epilogue[name] is given[name] for name in given)


def test_nothing_is_launched_for_nothing(driver, weight):
    assert linear(torch.ones(0, 192).bfloat16(), weight).shape == (0, 256)
    assert not driver.launches


def test_rows_on_top_of_one_another_are_copied(driver, weight, monkeypatch):
    seen = []
    monkeypatch.setattr(launch, "check_matrix", lambda *given: seen.append(given))
    linear(torch.ones(1, 192).bfloat16().expand(5, 192), weight)
    (b,) = [matrix for name, matrix in seen if name == "B"]
    assert (b.rows, b.width, b.pitch) == (5, 384, 384)


def test_every_product_of_a_call_is_tuned(driver, weight, tmp_path, monkeypatch):
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    named = []
    monkeypatch.setattr(
        torch.cuda, "get_device_name", lambda on=None: named.append(on) or "a card"
    )
    tuning._kept.cache_clear()
    asked = []

    def measure(once, search, shape, kernel):
        """The wider the better, as it were."""
        search.forced[kernel.kind, shape] = kernel.tile
        driver.launches.clear()
        once()
        asked.append(kernel.tile)
        assert kernel.tile in {each[0].tile for each in driver.launches}
        return -kernel.tile.n

    monkeypatch.setattr(searching, "_measure", measure)
    x = torch.ones(200, 192).bfloat16()
    bias = torch.zeros(256)

    def model():
        linear(linear(x, weight)[:, :192].contiguous(), weight, bias)

    found = ft.autotune(model)
    assert [kernel for kernel, _ in found] == [
        "bf16 bf16 sparse transposed",
        "bf16 bf16 sparse scaled transposed",
    ]
    widest = max(tile.n for tile in asked)
    assert {tile.n for tile in found.values()} == {widest}
    assert torch.device("cpu") in named  # the card of the operands, not the current one
    driver.launches.clear()
    model()  # from now on, too
    assert {each[0].tile.n for each in driver.launches} == {widest}
    assert not running.SEARCHES
    tuning._kept.cache_clear()


def test_products_of_experts_are_tuned(driver, tmp_path, monkeypatch):
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda on=None: "a card")
    tuning._kept.cache_clear()

    def measure(once, search, shape, kernel):
        """The widest is the best, as it were."""
        search.forced[kernel.kind, shape] = kernel.tile
        driver.launches.clear()
        once()
        assert {each[0].tile for each in driver.launches} == {kernel.tile}
        return -kernel.tile.n

    monkeypatch.setattr(searching, "_measure", measure)
    weights = ft.compress_experts(torch.randn(3, 64, 128).bfloat16())
    x, offs = torch.ones(300, 128).bfloat16(), torch.tensor([5, 9, 300]).int()

    def model():
        none = (None, None, None, None)
        given = (x, weights.data, offs, False, "bf16", 64)
        grouped_on_cuda(*given, torch.bfloat16, *none, False, ())

    ((kind, shape), tile), *rest = ft.autotune(model).items()
    assert not rest
    assert kind == "bf16 bf16 sparse transposed grouped"
    assert shape == (64, 300, 128, 3)
    driver.launches.clear()
    model()  # from now on, too
    assert [each[0].tile for each in driver.launches] == [tile]
    expected = choose_grouped(driver.launches[0][0], *shape)
    assert tile.n > expected.tile.n
    assert expected.parts(128) == driver.launches[0][0].parts(128)  # the same sums
    tuning._kept.cache_clear()


def test_what_is_known_is_looked_up(driver, weight):
    x, bias = torch.ones(6, 192).bfloat16(), torch.zeros(256)
    for _ in range(3):
        linear(x.clone(), weight, bias)
    assert len(running._READY) == 1
    assert len(driver.launches) == 3


@pytest.mark.parametrize(
    "other, known",
    [
        (lambda x: x[:5], 2),
        (lambda x: x.repeat(1, 2)[:, :192], 2),
        (lambda x: torch.ones(6 * 192 + 1).bfloat16()[1:].view(6, 192), 2),
        (lambda x: x.view(2, 3, 192), 1),
    ],
    ids=["fewer", "wider rows", "elsewhere in 16 bytes", "three axes"],
)
def test_what_is_known_holds_for_its_like_only(driver, weight, other, known):
    x = torch.ones(6, 192).bfloat16()
    linear(x, weight)
    linear(other(x), weight)
    assert len(running._READY) == known
    assert len(driver.launches) == 2


def test_nothing_wrong_is_taken_for_something_known(driver, weight):
    x = torch.ones(6, 192).bfloat16()
    linear(x, weight, torch.zeros(256))
    with pytest.raises(fm.Error, match=r"the weight is torch.bfloat16 and x"):
        linear(x.half(), weight, torch.zeros(256))
    with pytest.raises(
        fm.errors.ShapeError, match=r"bias must be a tensor of 256 float32"
    ):
        linear(x, weight, torch.zeros(255))
    with pytest.raises(fm.errors.ShapeError, match=r"must have bytes of shape"):
        linear(x[:, :64], weight, torch.zeros(256))
    assert len(driver.launches) == 1


def test_scattered_parts_are_gathered(driver, weight, monkeypatch):
    bias = torch.arange(512.0)[::2]
    seen = []
    real = launch.launch

    def listening(*given, epilogue, **options):
        numbers = (ctypes.c_float * 256).from_address(epilogue["bias"])
        seen.append(list(numbers))
        real(*given, epilogue=epilogue, **options)

    monkeypatch.setattr(running, "launch", listening)
    linear(torch.ones(6, 192).bfloat16(), weight, bias)
    assert seen == [bias.tolist()]


@pytest.mark.parametrize("scale", [None, torch.tensor(0.5)])
def test_rows_are_quantised_in_one_launch(driver, monkeypatch, scale):
    """The arguments are those of the kernel, in its order."""
    launches = []
    monkeypatch.setattr(launch, "load", lambda code, name: name)
    monkeypatch.setattr(
        launch, "start", lambda *given: launches.append((given, read(given[-1])))
    )

    def read(addresses):
        kinds = [*"PqqPqPP"][: len(addresses)]
        types = {"P": ctypes.c_void_p, "q": ctypes.c_longlong}
        pairs = zip(kinds, addresses, strict=True)
        return [types[kind].from_address(at).value for kind, at in pairs]

    x = torch.ones(3, 64).bfloat16()[:, :40]
    run = operators._OPERATORS["quantize_rows"].cuda
    values, scales = run(x, "e4m3", scale)
    (((name, grid, threads, shared, stream, _), found),) = launches
    assert name == ("quantize_rows" if scale is None else "quantize_rows_by")
    assert (grid, threads, shared, stream) == ((3, 1), 256, 0, 0)
    pointers = [values.data_ptr(), 48, scales.data_ptr()]
    assert found[:6] == [x.data_ptr(), 128, 40, *pointers]
    assert found[6:] == ([] if scale is None else [scale.data_ptr()])
    run(x[:0], "e4m3", scale)
    assert len(launches) == 1  # nothing is launched for nothing


@pytest.mark.parametrize("rows", [(0, 3), (4, 0)])
def test_no_bits_are_counted_where_there_are_no_rows(driver, rows):
    a, b = (torch.ones(each, 16, dtype=torch.uint8) for each in rows)
    empty = a if not rows[0] else b
    assert prepare.count_bits(empty).shape == (0,)
    assert not driver.launches


def test_bytes_elsewhere_in_a_unit_are_refused(driver, weight):
    room = torch.zeros(weight.data.numel() + 1, dtype=torch.uint8)[1:]
    moved = torch.from_numpy(room.numpy()).view(weight.data.shape)
    assert moved.data_ptr() % 16
    assert not moved.storage_offset() % 16
    with pytest.raises(fm.errors.ShapeError, match="begin on a multiple of 16"):
        operators._OPERATORS["sparse_linear"].cuda(
            torch.ones(2, 192).bfloat16(),
            moved,
            "bf16",
            256,
            torch.bfloat16,
            None,
            None,
            None,
            None,
            False,
            [],
        )


# ── weights that are trained ────────────────────────────────────────────────


@pytest.fixture
def engine(monkeypatch):
    """A GPU for the kernels that move kept values: the engine.  What was launched."""
    try:
        find()
    except fm.Error:
        pytest.skip("no compiler of CUDA C++ here")
    launched = []

    def start_kept(name, element_type, values, codes, columns, other):
        text = to_ptx(kept.kept_source(element_type), TARGET)
        whole = [as_array(x) for x in (values, codes, other)]
        pitches = [x.stride(0) * x.element_size() for x in (values, other)]
        arguments = [whole[0], pitches[0], len(values), columns, *whole[1:]]
        if not name.startswith("pack"):
            arguments.append(pitches[1])
        grid = kept.kept_grid(name, element_type, len(values), columns)
        ptx.parse(text).kernels[name].launch(grid, 256, arguments)
        launched.append(name)

    def as_array(x):
        """The memory of a tensor, with the room after its rows."""
        count = x.stride(0) * x.element_size() * len(x)
        return np.ctypeslib.as_array(
            (ctypes.c_ubyte * count).from_address(x.data_ptr())
        )

    monkeypatch.setattr(training, "start_kept", start_kept)
    return launched


def test_kept_values_move_as_on_the_cpu(engine):
    """Rows that begin anywhere, too: they are copied."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(42, 10).bfloat16()
    layer = ft.SparseLinear.from_linear(
        layer, prune=True, train=True, transposable=True
    )
    values, codes = layer.weight_values.detach(), layer.weight_codes
    dense = torch.randn(10, 42).bfloat16()
    for name, given in (
        ("pack_kept", (values, codes, "bf16", 42, False)),
        ("pack_kept", (values, codes, "bf16", 42, True)),
        ("kept_to_dense", (values, codes, "bf16", 42)),
        ("gather_kept", (dense, codes, "bf16")),
    ):
        each = operators._OPERATORS[name]
        assert torch.equal(each.cuda(*given), each.cpu(*given)), name
    assert engine == ["pack", "pack_transposed", "to_dense", "gather"]


def test_a_thread_without_a_context_gets_one(monkeypatch):
    """PyTorch's threads for gradients have none before their first allocation."""
    asked = []
    driver = SimpleNamespace(
        cuCtxGetCurrent=lambda: (0, asked[-1] if asked else 0),
        cuDeviceGet=lambda gpu: (0, f"device {gpu}"),
        cuDevicePrimaryCtxRetain=lambda device: (0, 77 if "2" in device else 0),
        cuCtxSetCurrent=lambda context: (asked.append(context), (0,))[1],
    )
    monkeypatch.setattr(launch, "_driver", lambda: driver)
    for _ in range(2):
        launch.adopt_context(2)
    assert asked == [77]


def test_what_a_kernel_of_kept_values_is_given(monkeypatch, driver):
    seen = []

    def start(handle, grid, threads, shared, stream, addresses):
        sizes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int, ctypes.c_int]
        sizes += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong]
        values = (
            kind.from_address(at).value
            for kind, at in zip(sizes, addresses, strict=False)
        )
        seen.append((handle, grid, threads, list(values)))

    monkeypatch.setattr(launch, "load", lambda code, name: name)
    monkeypatch.setattr(launch, "start", start)
    monkeypatch.setattr(kept, "kept_cubin", lambda element_type: b"")
    layer = ft.SparseLinear(64, 300, train=True)
    values, codes = layer.weight_values.detach(), layer.weight_codes
    packed = operators._OPERATORS["pack_kept"].cuda(values, codes, "bf16", 64, False)
    dense = operators._OPERATORS["kept_to_dense"].cuda(values, codes, "bf16", 64)
    given = [values.data_ptr(), 64, 300, 64, codes.data_ptr()]
    assert seen[0] == ("pack", (1, 8), 256, [*given, packed.data_ptr()])
    assert seen[1] == ("to_dense", (1, 5), 256, [*given, dense.data_ptr(), 128])
