// Memory: what is allocated is shared with the server, at the addresses that kernels use.
//
// Host and managed memory is mapped at these addresses.  Device memory has another place
// here, through which it is copied: a program that reads it directly ends as on a GPU.
#include "graphs.h"
#include "memory.h"
#include "server.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace {
constexpr int SLOT_BITS = 36;
constexpr uint64_t FIRST = 16ull << SLOT_BITS, LAST = 1024ull << SLOT_BITS;  // of allocations

struct Allocation {
    uint64_t size;
    Kind kind;
    char *alias;      // where its bytes are for this process
    bool variable;
    bool graph = false, live = true;  // of a graph: whether it is allocated now
    bool marked = false;              // whether words that nobody wrote have a mark
    char *end(uint64_t base) const { return (char *)base + size; }
};
std::map<uint64_t, Allocation> &allocations() {
    static auto *made = new std::map<uint64_t, Allocation>;
    return *made;
}
std::map<uint64_t, size_t> &registered() {
    static auto *made = new std::map<uint64_t, size_t>;
    return *made;
}

Allocation *holder(const void *pointer, uint64_t *base) {
    auto &all = allocations();
    auto found = all.upper_bound((uint64_t)pointer);
    if (found == all.begin()) return nullptr;
    --found;
    *base = found->first;
    bool inside = (uint64_t)pointer - found->first < found->second.size;
    return inside ? &found->second : nullptr;
}

size_t pages(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }
}  // namespace

bool adopt(uint64_t address, size_t bytes, Kind kind, int file, bool variable) {
    size_t room = pages(bytes);
    bool hidden = kind == DEVICE || kind == POOLED;
    int reach = hidden ? PROT_NONE : PROT_READ | PROT_WRITE;
    int way = MAP_SHARED | MAP_FIXED_NOREPLACE;
    void *here = mmap((void *)address, room, reach, way, file, 0);
    if (here != (void *)address) {
        if (here != MAP_FAILED) munmap(here, room);
        return false;
    }
    void *alias = here;
    if (hidden) alias = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (alias == MAP_FAILED) {
        munmap(here, room);
        return false;
    }
    allocations()[address] = {bytes, kind, (char *)alias, variable};
    return true;
}

int allocate(void **where, size_t bytes, Kind kind) {
    if (!where) return INVALID_VALUE;
    *where = nullptr;
    if (int error = failed()) return error;
    if (kind != POOLED)
        if (int error = forbidden_while_capturing()) return error;
    if (!bytes) return OK;
    for (int attempt = 0; attempt < 64; attempt++) {
        Answer answer;
        int error = ask(ALLOCATE, {bytes, (uint64_t)kind}, "", &answer);
        if (error) return error;
        bool fine = adopt(answer[0], bytes, kind, answer.file, false);
        close(answer.file);
        if (fine) {
            *where = (void *)answer[0];
            allocations()[answer[0]].marked = answer[1];
            state.used += bytes;
            return OK;
        }
        // Something else is there in this process: the server takes another place.
        ask(FREE, {answer[0], 1});
    }
    return OUT_OF_MEMORY;
}

int allocate_pitch(void **where, size_t *pitch, size_t width, size_t height) {
    size_t line = (width + 511) & ~(size_t)511, bytes;
    if (!pitch || line < width || __builtin_mul_overflow(line, height, &bytes)) return INVALID_VALUE;
    int error = allocate(where, bytes, DEVICE);
    if (!error) *pitch = line;
    return error;
}

int allocate_3d(Pitched *where, size_t width, size_t height, size_t depth) {
    void *pointer;
    size_t pitch;
    int error = allocate_pitch(&pointer, &pitch, width, height * depth);
    if (!error) *where = {(char *)pointer, pitch, width, height};
    return error;
}

static int release_at(uint64_t base, Allocation &held) {
    if (int error = ask(FREE, {base, 0}, called())) return error;
    if (held.alias != (char *)base) munmap(held.alias, pages(held.size));
    munmap((void *)base, pages(held.size));
    state.used -= held.size;
    allocations().erase(base);
    return OK;
}

// What the program wants to do with memory that is not there: the server tells, if it was
// freed before, or if there are fewer bytes.
enum Wish { FREES = 0, READS = 1, WRITES = 2 };
static int missing(const void *pointer, Wish wish, size_t bytes = 0) {
    if (pointer) ask(GONE, {(uint64_t)pointer, wish, bytes}, called());
    return INVALID_VALUE;
}

int release(void *where) {
    if (int error = forbidden_while_capturing()) return error;
    if (!where) return OK;
    flush();
    if (int error = failed()) return error;
    auto found = allocations().find((uint64_t)where);
    if (found == allocations().end()) return missing(where, FREES);
    if (found->second.variable) return INVALID_VALUE;
    Allocation &held = found->second;
    if (!held.graph) return release_at(found->first, held);
    bool live = held.live;
    held.live = false;
    return live ? OK : INVALID_VALUE;
}

// Memory of a graph keeps its address and its place when it is freed: the graph may run
// again, and allocates it again.
int belong_to_graph(void *where, bool live) {
    auto found = allocations().find((uint64_t)where);
    if (found == allocations().end()) return INVALID_VALUE;
    found->second.graph = true, found->second.live = live;
    return OK;
}

int release_host(void *where) { return release(where); }

void release_all() {
    while (!allocations().empty()) {
        auto first = allocations().begin();
        auto [base, held] = *first;
        if (held.alias != (char *)base) munmap(held.alias, pages(held.size));
        munmap((void *)base, pages(held.size));
        allocations().erase(first);
    }
    state.used = 0;
}

int allocate_async(void **where, size_t bytes, Stream *stream) {
    int capturing = 0;
    int error = capture_status(stream, &capturing, nullptr, nullptr, nullptr, nullptr);
    if (!error && !capturing) error = forbidden_while_capturing();
    if (!error) error = allocate(where, bytes, POOLED);
    if (error || !capturing || !*where) return error;
    void *made = *where;
    belong_to_graph(made, false);
    return submit(stream, ALLOCATED, [=] { return belong_to_graph(made, true); });
}

int later(Stream *stream, int (*what)(void *), void *where) {
    return submit(stream, FREED, [=] { return what(where); });
}

// A process without a limit for its stack has libraries, threads and large arrays among
// the addresses of allocations.  What was freed is not mapped.
static bool is_mapped(uint64_t address, size_t bytes) {
    if (bytes > LAST) return false;  // more than there are addresses
    uint64_t start = address & ~(uint64_t)4095;
    return !msync((void *)start, address + bytes - start, MS_ASYNC);
}

// Where the bytes of a pointer are for this process; null if it reaches too far.
static char *reach(const void *pointer, size_t bytes) {
    uint64_t base, address = (uint64_t)pointer;
    Allocation *held = holder(pointer, &base);
    bool among = address >= FIRST && address < LAST;
    if (!held) return among && !is_mapped(address, bytes) ? nullptr : (char *)pointer;
    if (bytes > held->size - (address - base)) return nullptr;
    return held->alias + (address - base);
}

static bool is_device(const void *pointer) {
    uint64_t base;
    return holder(pointer, &base) != nullptr;
}

// The bytes from the first to the last of some lines; false if they are too many to count.
static bool spans(size_t *bytes, size_t pitch, size_t width, size_t height) {
    return !__builtin_mul_overflow(pitch, height - 1, bytes) && !__builtin_add_overflow(*bytes, width, bytes);
}

// Whether a word of some lines may be one that nobody wrote; the server knows which.
static bool has_mark(const char *lines, size_t pitch, size_t width, size_t height) {
    for (size_t line = 0; line < height; line++, lines += pitch) {
        size_t skip = -(uint64_t)lines & 3, found = 0;
        auto *words = (const uint32_t *)(lines + skip);
        if (skip < width)
            for (size_t at = 0; at < (width - skip) / 4; at++) found += words[at] == UNWRITTEN;
        if (found) return true;
    }
    return false;
}

static int copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height) {
    if (!width || !height) return OK;
    if (height > 1 && (width > to_pitch || width > from_pitch)) return 12;  // invalid pitch
    size_t to_bytes, from_bytes;
    if (!spans(&to_bytes, to_pitch, width, height) || !spans(&from_bytes, from_pitch, width, height)) return INVALID_VALUE;
    char *goal = reach(to, to_bytes), *source = reach(from, from_bytes);
    if (!source || !from) return missing(from, READS, from_bytes);
    if (!goal || !to) return missing(to, WRITES, to_bytes);
    for (size_t line = 0; line < height; line++)
        memmove(goal + line * to_pitch, source + line * from_pitch, width);
    uint64_t base;
    Allocation *held = holder(from, &base), *there = holder(to, &base);
    bool leaves = !there || there->kind == HOST || there->kind == MANAGED;
    if (held && held->marked && leaves && has_mark(source, from_pitch, width, height))
        return ask(READ, {(uint64_t)from, width, from_pitch, height}, called());
    return OK;
}

int copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, Stream *stream) {
    flush();
    if (int error = failed()) return error;
    return submit(stream, COPIED, [=] { return copy_lines(to, to_pitch, from, from_pitch, width, height); });
}

int copy(void *to, const void *from, size_t bytes, int kind, Stream *stream) {
    if (kind < 0 || kind > 4) return 21;  // invalid direction
    bool device = kind == 1 || kind == 3, source = kind == 2 || kind == 3;
    if (bytes) {
        bool reads = source && !is_device(from), writes = device && !is_device(to);
        if (reads || writes) return failed() ? failed() : reads ? missing(from, READS) : missing(to, WRITES);
    }
    return copy_2d(to, bytes, from, bytes, bytes, 1, stream);
}

int copy_3d(const Copy3 *what, Stream *stream) {
    if (what->from_array || what->to_array) return refuse("cudaMemcpy3D", "arrays of textures are not supported");
    Copy3 c = *what;
    if (int error = failed()) return error;
    return submit(stream, COPIED, [c] {
        for (size_t z = 0; z < c.extent.z; z++) {
            char *to = c.to.pointer + c.to_at.x + c.to.pitch * (c.to_at.y + c.to.height * (c.to_at.z + z));
            char *from = c.from.pointer + c.from_at.x + c.from.pitch * (c.from_at.y + c.from.height * (c.from_at.z + z));
            if (int error = copy_lines(to, c.to.pitch, from, c.from.pitch, c.extent.x, c.extent.y)) return error;
        }
        return (int)OK;
    });
}

int copy_driver_3d(const DriverCopy3 *what, Stream *stream) {
    if (what->from_type == 3 || what->to_type == 3) return refuse("cuMemcpy3D", "arrays of textures are not supported");
    Copy3 made{};
    made.from = {what->from_type == 1 ? what->from_host : what->from_device, what->from_pitch, 0, what->from_height};
    made.to = {what->to_type == 1 ? what->to_host : what->to_device, what->to_pitch, 0, what->to_height};
    made.from_at = {what->from_x, what->from_y, what->from_z};
    made.to_at = {what->to_x, what->to_y, what->to_z};
    made.extent = {what->width, what->height, what->depth};
    return copy_3d(&made, stream);
}

int copy_driver_2d(const DriverCopy2 *what, Stream *stream) {
    DriverCopy3 made{};
    made.from_x = what->from_x, made.from_y = what->from_y, made.from_type = what->from_type;
    made.from_host = what->from_host, made.from_device = what->from_device;
    made.from_pitch = what->from_pitch ? what->from_pitch : what->width;
    made.to_x = what->to_x, made.to_y = what->to_y, made.to_type = what->to_type;
    made.to_host = what->to_host, made.to_device = what->to_device;
    made.to_pitch = what->to_pitch ? what->to_pitch : what->width;
    made.width = what->width, made.height = what->height, made.depth = 1;
    return copy_driver_3d(&made, stream);
}

// Zero: whole pages are given back, so that memory which a program only clears costs none.
static void clear(char *goal, size_t bytes) {
    uint64_t first = ((uint64_t)goal + 4095) & ~4095ull, last = ((uint64_t)goal + bytes) & ~4095ull;
    if (first >= last || madvise((void *)first, last - first, MADV_REMOVE)) {
        memset(goal, 0, bytes);
        return;
    }
    memset(goal, 0, first - (uint64_t)goal);
    memset((char *)last, 0, (uint64_t)goal + bytes - last);
}

int fill_2d(void *to, size_t pitch, unsigned value, size_t element, size_t width, size_t height, Stream *stream) {
    if (int error = failed()) return error;
    return submit(stream, FILLED, [=] {
        if (!width || !height) return (int)OK;
        if (!is_device(to)) return missing(to, WRITES);
        if ((uint64_t)to % element) return (int)INVALID_VALUE;
        size_t line, bytes;
        if (__builtin_mul_overflow(width, element, &line) || !spans(&bytes, pitch, line, height)) return (int)INVALID_VALUE;
        char *goal = reach(to, bytes);
        if (!goal) return (int)INVALID_VALUE;
        if (!value && (height == 1 || pitch == line)) {
            clear(goal, bytes);
            return (int)OK;
        }
        for (size_t at_line = 0; at_line < height; at_line++, goal += pitch) {
            if (element == 1) memset(goal, value, width);
            else for (size_t at = 0; at < width; at++) memcpy(goal + at * element, &value, element);
        }
        return (int)OK;
    });
}

int fill(void *to, unsigned value, size_t element, size_t count, Stream *stream) {
    return fill_2d(to, count * element, value, element, count, 1, stream);
}

int fill_3d(Pitched to, int value, Extent extent, Stream *stream) {
    for (size_t z = 0; z < extent.z; z++)
        if (int error = fill_2d(to.pointer + z * to.pitch * to.height, to.pitch, value, 1, extent.x, extent.y, stream)) return error;
    return OK;
}

// ── what a pointer is ───────────────────────────────────────────────────────

int pointer_attributes(PointerAttributes *where, const void *pointer) {
    if (int error = ready()) return error;
    uint64_t base;
    Allocation *held = holder(pointer, &base);
    static const int types[] = {2, 3, 1, 2};  // of CUDA's cudaMemoryType
    if (!held) *where = {0, -2, nullptr, (void *)pointer};
    else *where = {types[held->kind], 0, (void *)pointer, held->kind == DEVICE || held->kind == POOLED ? nullptr : (void *)pointer};
    return OK;
}

static int put_attribute(void *where, int which, uint64_t value) {
    static const uint64_t wide = 0x1e189a;  // attributes of 8 bytes: 1, 3, 4, 7, 11, 12, 17 to 20
    if (!where) return INVALID_VALUE;
    return wide >> which & 1 ? put((uint64_t *)where, value) : put((unsigned *)where, (unsigned)value);
}

int pointer_attribute(void *where, int which, const void *pointer) {
    if (int error = ready()) return error;
    uint64_t base;
    Allocation *held = holder(pointer, &base);
    if (!held || which < 1 || which > 22) return INVALID_VALUE;
    switch (which) {
        case 1: return put_attribute(where, which, (uint64_t)&state);
        case 2: return put_attribute(where, which, held->kind == HOST ? 1 : 2);
        case 4: if (held->kind == DEVICE || held->kind == POOLED) return INVALID_VALUE;
        [[fallthrough]];
        case 3: return put_attribute(where, which, (uint64_t)pointer);
        case 7: case 11: case 19: case 20: return put_attribute(where, which, base);
        case 8: return put_attribute(where, which, held->kind == MANAGED);
        case 12: case 18: return put_attribute(where, which, held->size);
        case 13: return put_attribute(where, which, 1);
        case 16: return put_attribute(where, which, 3);  // may be read and written
        case 17: return put_attribute(where, which, held->kind == POOLED);  // the one pool
        case 22: return put_attribute(where, which, -1);
        default: return put_attribute(where, which, 0);
    }
}

int pointer_attributes(unsigned count, const int *which, void **where, const void *pointer) {
    if (int error = ready()) return error;
    if (!count || !which || !where) return INVALID_VALUE;
    for (unsigned at = 0; at < count; at++) {
        if (which[at] < 1 || which[at] > 22) return INVALID_VALUE;
        // What does not hold of this pointer is zero, and no error.
        if (int error = put_attribute(where[at], which[at], 0)) return error;
        int error = pointer_attribute(where[at], which[at], pointer);
        if (error && error != INVALID_VALUE) return error;
    }
    return OK;
}

int range(void **base, size_t *size, const void *pointer) {
    uint64_t start;
    Allocation *held = holder(pointer, &start);
    if (!held) return NOT_FOUND;
    if (base) *base = (void *)start;
    if (size) *size = held->size;
    return OK;
}

int device_pointer(void **where, void *host) {
    uint64_t base;
    Allocation *held = holder(host, &base);
    if (held) return put(where, host);
    if (registered().count((uint64_t)host))
        return refuse("cudaHostGetDevicePointer", "memory of cudaHostRegister cannot be used by kernels; use cudaMallocHost");
    return INVALID_VALUE;
}

int host_register(void *host, size_t bytes) {
    if (int error = failed()) return error;
    if (!host || !bytes) return INVALID_VALUE;
    return registered().emplace((uint64_t)host, bytes).second ? OK : 712;  // already registered
}

int host_unregister(void *host) {
    return registered().erase((uint64_t)host) ? OK : 713;  // not registered
}
