// What the client does for a program.  The functions of CUDA's runtime and driver are
// one line each: they are written from the tables of functions.py, and call these.
//
// The numbers and structs here are those of CUDA's binary interface.
#pragma once

#include <cstddef>
#include <cstdint>

enum Error {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
    INVALID_CONFIGURATION = 9,
    INVALID_SYMBOL = 13, INVALID_DEVICE_FUNCTION = 98, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
    NO_PTX = 209, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500,
    COOPERATIVE_TOO_LARGE = 720, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALID = 901, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907,
    UNKNOWN = 999,
};
enum Kind { DEVICE = 0, MANAGED = 1, HOST = 2, POOLED = 3 };

struct Channel { int x, y, z, w, kind; };
struct Three { unsigned x, y, z; };
struct Extent { size_t x, y, z; };
struct Pitched { char *pointer; size_t pitch, width, height; };
struct Copy3 {
    void *from_array; Extent from_at; Pitched from;
    void *to_array; Extent to_at; Pitched to;
    Extent extent; int kind;
};
struct DriverCopy2 {
    size_t from_x, from_y; int from_type; char *from_host, *from_device;
    void *from_array; size_t from_pitch;
    size_t to_x, to_y; int to_type; char *to_host, *to_device;
    void *to_array; size_t to_pitch;
    size_t width, height;
};
struct DriverCopy3 {
    size_t from_x, from_y, from_z, from_level; int from_type;
    char *from_host, *from_device; void *from_array, *from_reserved;
    size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_level; int to_type;
    char *to_host, *to_device; void *to_array, *to_reserved;
    size_t to_pitch, to_height;
    size_t width, height, depth;
};
struct PointerAttributes { int type, device; void *device_pointer, *host_pointer; };
struct FunctionAttributes {
    size_t shared, constant, local;
    int threads, registers, ptx, binary, cache, dynamic, carveout;
    int cluster_must_be_set, cluster[3], policy, portable, update, reserved[14];
};
struct Attribute { int id, pad; union { char bytes[64]; unsigned words[16]; }; };
struct Config {
    Three grid, block; size_t shared; struct Stream *stream;
    Attribute *attributes; unsigned count;
};
struct DriverConfig {
    Three grid, block; unsigned shared; Stream *stream;
    Attribute *attributes; unsigned count;
};
struct KernelNode { void *function; Three grid, block; unsigned shared; void **arguments, **extra; };
struct MemsetNode { char *to; size_t pitch; unsigned value, element; size_t width, height; };
struct HostNode { void (*function)(void *); void *data; };
struct AllocNode { char pool[88]; const void *access; size_t count, bytes; void *pointer; };

struct Module;    // a fat binary, a cubin or PTX text
struct Function;  // a kernel
struct Stream;
struct Event;
struct Graph;
struct Node;
struct Exec;
using Callback = void (*)(Stream *, int, void *);

// One thread at a time, in a function of CUDA that the program called.
struct Guard { Guard(const char *name = nullptr); ~Guard(); const char *before; };

// errors and the device
int done(int code);      // the code, remembered as the last error of this thread
int last(bool clear);
int failed();            // what an earlier kernel did wrong, or what made us unusable
int ready();             // connects, if that was not done yet
int present(int device); // whether the device exists
const char *error_name(int code), *driver_error_name(int code), *error_words(int code);
int refuse(const char *name, const char *why);
int attribute(int *value, int number, int device);
int properties(void *where, int version, int device);
int device_name(char *where, int size);
int total_memory(size_t *bytes), memory_info(size_t *free, size_t *total);
int synchronize(), synchronize(Stream *stream), reset();
int limit(size_t *value, int which), set_limit(int which, size_t value);

// memory
int allocate(void **where, size_t bytes, Kind kind);
int allocate_pitch(void **where, size_t *pitch, size_t width, size_t height);
int allocate_3d(Pitched *where, size_t width, size_t height, size_t depth);
int allocate_async(void **where, size_t bytes, Stream *stream);
int release(void *where), release_host(void *where);
int later(Stream *stream, int (*what)(void *), void *where);
int copy(void *to, const void *from, size_t bytes, int kind, Stream *stream);
int copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, Stream *stream);
int copy_3d(const Copy3 *what, Stream *stream);
int copy_driver_2d(const DriverCopy2 *what, Stream *stream);
int copy_driver_3d(const DriverCopy3 *what, Stream *stream);
int fill(void *to, unsigned value, size_t element, size_t count, Stream *stream);
int fill_2d(void *to, size_t pitch, unsigned value, size_t element, size_t width, size_t height, Stream *stream);
int fill_3d(Pitched to, int value, Extent extent, Stream *stream);
int pointer_attributes(PointerAttributes *where, const void *pointer);
int pointer_attribute(void *where, int which, const void *pointer);
int pointer_attributes(unsigned count, const int *which, void **where, const void *pointer);
int range(void **base, size_t *size, const void *pointer);
int device_pointer(void **where, void *host);
int host_register(void *host, size_t bytes), host_unregister(void *host);

// modules and kernels
void **register_fat_binary(const void *wrapper);
void unregister(void **module);
void prepare_managed();
void register_function(void **module, const void *host, const char *name);
void register_variable(void **module, const void *host, const char *name, void **managed);
int load(Module **where, const void *image), load_file(Module **where, const char *path), unload(Module *module);
int find_kernel(Function **where, Module *module, const char *name);
int find_variable(void **where, size_t *bytes, Module *module, const char *name);
int count_kernels(unsigned *where, Module *module);
int kernel_of(Function **where, const void *symbol);
int symbol(void **where, size_t *bytes, const void *host);
int copy_to_symbol(const void *host, const void *from, size_t bytes, size_t offset, Stream *stream);
int copy_from_symbol(void *to, const void *host, size_t bytes, size_t offset, Stream *stream);
int function_attributes(FunctionAttributes *where, const void *symbol);
int function_attribute(int *value, int which, const void *symbol);
int set_function_attribute(const void *symbol, int which, int value);
int function_name(const char **where, const void *symbol);
int parameter_info(const void *symbol, size_t index, size_t *offset, size_t *size);
int parameter_count(const void *symbol, size_t *count);
int function_module(Module **where, const void *symbol);

// launches
unsigned push(Three grid, Three block, size_t shared, Stream *stream);
int pop(Three *grid, Three *block, size_t *shared, Stream **stream);
int launch(const void *symbol, Three grid, Three block, void **arguments, size_t shared, Stream *stream, bool cooperative = false, void **extra = nullptr);
int launch_config(const Config *config, const void *symbol, void **arguments);
int launch_driver_config(const DriverConfig *config, const void *symbol, void **arguments, void **extra);
int set_block(Function *kernel, int x, int y, int z), set_shared(Function *kernel, unsigned bytes);
int set_parameter(Function *kernel, int offset, const void *from, unsigned bytes);
int set_parameters_size(Function *kernel, unsigned bytes);
int launch_set(Function *kernel, int width, int height, Stream *stream);
int occupancy(int *blocks, const void *symbol, int threads, size_t shared);
int potential_block(int *grid, int *block, const void *symbol, size_t (*shared_of)(int), size_t shared, int most);
int dynamic_memory(size_t *bytes, const void *symbol, int blocks, int threads);
int clusters(int *count, const void *symbol, Three block, size_t shared, Attribute *attributes, unsigned number);
int encode_tiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill);
int encode_im2col(void *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides, const int *lower, const int *upper, unsigned channels, unsigned pixels, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill);
int replace_address(void *map, void *address);

// streams, events and graphs
int create(Stream **where, unsigned flags, int priority);
int destroy(Stream *stream), destroy(Event *event), destroy(Graph *graph), destroy(Exec *exec), destroy(Node *node);
int create(Event **where, unsigned flags);
int record(Event *event, Stream *stream), query(Event *event);
int elapsed(float *milliseconds, Event *from, Event *to);
int wait(Stream *stream, Event *event);
int stream_flags(unsigned *where, Stream *stream), stream_priority(int *where, Stream *stream);
int stream_number(unsigned long long *where, Stream *stream);
int call_host(Stream *stream, void (*function)(void *), void *data);
int call_back(Stream *stream, Callback function, void *data);
int begin_capture(Stream *stream, Graph *into, int mode), end_capture(Stream *stream, Graph **where);
int exchange_mode(int *mode);
int capture_status(Stream *stream, int *status, unsigned long long *number, Graph **graph, const Node ***after, size_t *count);
int create(Graph **where), clone(Graph **where, Graph *graph);
int instantiate(Exec **where, Graph *graph), run(Exec *exec, Stream *stream), update(Exec *exec, Graph *graph);
int add_edges(Graph *graph, Node *const *from, Node *const *to, size_t count);
int add_empty(Node **where, Graph *graph, Node *const *after, size_t count);
int add_kernel(Node **where, Graph *graph, Node *const *after, size_t count, const KernelNode *what);
int add_copy(Node **where, Graph *graph, Node *const *after, size_t count, const Copy3 *what);
int add_copy_1d(Node **where, Graph *graph, Node *const *after, size_t count, void *to, const void *from, size_t bytes);
int add_fill(Node **where, Graph *graph, Node *const *after, size_t count, const MemsetNode *what);
int add_host(Node **where, Graph *graph, Node *const *after, size_t count, const HostNode *what);
int add_child(Node **where, Graph *graph, Node *const *after, size_t count, Graph *child);
int add_alloc(Node **where, Graph *graph, Node *const *after, size_t count, AllocNode *what);
int add_free(Node **where, Graph *graph, Node *const *after, size_t count, void *what);
int add_record(Node **where, Graph *graph, Node *const *after, size_t count, Event *event);
int set_kernel(Exec *exec, Node *node, const KernelNode *what);
int set_copy(Exec *exec, Node *node, const Copy3 *what);
int set_copy_1d(Exec *exec, Node *node, void *to, const void *from, size_t bytes);
int set_fill(Exec *exec, Node *node, const MemsetNode *what);
int set_host(Exec *exec, Node *node, const HostNode *what);
int set_child(Exec *exec, Node *node, Graph *child);
int get_nodes(Graph *graph, Node **where, size_t *count, bool roots);
int get_edges(Graph *graph, Node **from, Node **to, size_t *count);
int get_after(Node *node, Node **where, size_t *count), get_before(Node *node, Node **where, size_t *count);
int node_type(int *where, Node *node);

// entry points by name
int entry_point(const char *name, void **where, int version, int *status);
int private_table(const void **where, void *caller);
template <class To, class From> int put(To *where, From value) {
    if (where) *where = (To)value;
    return where ? OK : INVALID_VALUE;
}
