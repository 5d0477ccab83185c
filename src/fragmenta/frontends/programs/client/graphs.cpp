// Streams, events and graphs.  Work is done in the order in which a program asks for it.
#include "graphs.h"
#include "kernels.h"
#include "memory.h"
#include "server.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

struct Node {
    NodeType type;
    Task task;
    Launch launch{};
    std::vector<Node *> after;  // what comes before it
    Graph *child = nullptr;
};

enum Mode { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };  // of a capture, with CUDA's numbers

struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
    // while it is captured
    bool capturing = false, invalid = false;
    int mode = GLOBAL;
    std::thread::id owner{};
};

struct Stream {
    unsigned flags = 0;
    int priority = 0;
    Graph *capture = nullptr;
    bool origin = false;
    std::vector<Node *> ends;   // what the next node comes after
};

struct Event {
    bool recorded = false;
    std::chrono::steady_clock::time_point when{};
    Graph *capture = nullptr;
    std::vector<Node *> ends;
};

struct Exec {
    std::vector<Node *> order;  // of the graph that it was made of
    std::map<Node *, Task> tasks;
};

namespace {
// The handles of one type that a program may use.  CUDA's own runtime crashes with some
// that are wrong; here they are an error.
template <class T> std::set<T *> &living() { static auto *made = new std::set<T *>; return *made; }
template <class T> bool lives(T *handle) { return living<T>().count(handle); }
template <class T> T *born(T *handle) { living<T>().insert(handle); return handle; }
std::set<Stream *> &streams() { return living<Stream>(); }

// The streams without a handle of their own: null, legacy, per thread.
Stream *real(Stream *stream) {
    static Stream usual;
    return (uintptr_t)stream < 3 ? &usual : stream;
}

bool valid(Stream *stream) { return (uintptr_t)stream < 3 || lives(stream); }

bool live(Node *const *nodes, size_t count) {
    return !count || (nodes && std::all_of(nodes, nodes + count, lives<Node>));
}

Node *add(Graph *graph, NodeType type, Task task, std::vector<Node *> after) {
    graph->nodes.emplace_back(born(new Node{type, std::move(task), {}, std::move(after)}));
    return graph->nodes.back().get();
}

int added(Node **where, Graph *graph, NodeType type, Task task, Node *const *after, size_t count) {
    if (!lives(graph) || !live(after, count)) return INVALID_VALUE;
    return put(where, add(graph, type, std::move(task), {after, after + count}));
}

// All nodes, each behind those that it comes after; false if there is a circle.
bool ordered(Graph *graph, std::vector<Node *> &order) {
    std::set<Node *> placed;
    while (order.size() < graph->nodes.size()) {
        size_t before = order.size();
        for (auto &each : graph->nodes) {
            auto in = [&](Node *node) { return placed.count(node) > 0; };
            if (placed.count(each.get()) || !std::all_of(each->after.begin(), each->after.end(), in)) continue;
            order.push_back(each.get());
            placed.insert(each.get());
        }
        if (order.size() == before) return false;
    }
    return true;
}

int run_all(Graph *graph) {
    std::vector<Node *> order;
    if (!ordered(graph, order)) return INVALID_VALUE;
    for (Node *each : order)
        if (int error = each->task ? each->task() : OK) return error;
    return OK;
}
}  // namespace

// ── what a capture forbids, as an H200 with CUDA 13.0 answers ───────────────

static thread_local int thread_mode = GLOBAL;
static int under_way = 0;  // tasks that are carried out now: these are no calls of the program

int exchange_mode(int *mode) {
    if (!mode || *mode < GLOBAL || *mode > RELAXED) return INVALID_VALUE;
    std::swap(*mode, thread_mode);
    return OK;
}

template <class Which> static int invalidate(int error, Which which) {
    bool any = false;
    for (Graph *each : living<Graph>())
        if (each->capturing && which(each)) any = each->invalid = true;
    return any ? error : OK;
}

int forbidden_while_capturing() {  // what may wait for a stream, such as cudaMalloc
    if (under_way || thread_mode == RELAXED) return OK;
    return invalidate(CAPTURE_UNSUPPORTED, [](Graph *each) {
        bool mine = each->owner == std::this_thread::get_id();
        return each->mode == GLOBAL ? mine || thread_mode == GLOBAL : each->mode == THREAD_LOCAL && mine;
    });
}

int synchronize() {
    if (int error = under_way ? OK : invalidate(CAPTURE_UNSUPPORTED, [](Graph *) { return true; })) return error;
    flush();
    return failed();
}

int synchronize(Stream *stream) {
    if (!valid(stream)) return INVALID_HANDLE;
    if (Graph *own = real(stream)->capture) return invalidate(CAPTURE_UNSUPPORTED, [=](Graph *each) { return each == own; });
    if (int error = forbidden_while_capturing()) return error;
    flush();
    return failed();
}

// The legacy stream waits for all streams that may block, and these may be captured.
static int implicit(Stream *stream) {
    if (under_way || (uintptr_t)stream > 1) return OK;
    return invalidate(CAPTURE_IMPLICIT, [](Graph *graph) {
        return std::any_of(streams().begin(), streams().end(), [=](Stream *each) { return each->capture == graph && !(each->flags & 1); });
    });
}

int submit(Stream *stream, NodeType type, Task task) {
    if (!valid(stream)) return INVALID_HANDLE;
    if (int error = implicit(stream)) return error;
    Stream *held = real(stream);
    if (!held->capture) {
        under_way++;
        int error = task();
        under_way--;
        return error;
    }
    if (held->capture->invalid) return CAPTURE_INVALID;
    held->ends = {add(held->capture, type, std::move(task), held->ends)};
    return OK;
}

int submit(const Launch &launch, Stream *stream) {
    int error = submit(stream, KERNEL_NODE, [launch] { return run(launch); });
    Stream *held = real(stream);
    if (!error && held->capture) held->ends[0]->launch = launch;
    return error;
}

// ── streams ─────────────────────────────────────────────────────────────────

int create(Stream **where, unsigned flags, int priority) {
    if (int error = failed()) return error;
    if (!where || flags > 1) return INVALID_VALUE;
    *where = new Stream;
    (*where)->flags = flags, (*where)->priority = priority;
    streams().insert(*where);
    return OK;
}

int destroy(Stream *stream) {
    if (!streams().erase(stream)) return INVALID_HANDLE;
    delete stream;
    return OK;
}

int stream_flags(unsigned *where, Stream *stream) {
    return valid(stream) ? put(where, real(stream)->flags) : (int)INVALID_HANDLE;
}

int stream_priority(int *where, Stream *stream) {
    return valid(stream) ? put(where, real(stream)->priority) : (int)INVALID_HANDLE;
}

int stream_number(unsigned long long *where, Stream *stream) {
    return put(where, (uintptr_t)stream);
}

int call_host(Stream *stream, void (*function)(void *), void *data) {
    if (int error = failed()) return error;
    flush();
    return submit(stream, HOSTED, [=] { function(data); return (int)OK; });
}

int call_back(Stream *stream, Callback function, void *data) {
    flush();
    return submit(stream, HOSTED, [=] { function(stream, failed(), data); return (int)OK; });
}

// ── events ──────────────────────────────────────────────────────────────────

int create(Event **where, unsigned) {
    if (int error = failed()) return error;
    return where ? put(where, born(new Event)) : (int)INVALID_VALUE;
}

int destroy(Event *event) {
    if (!living<Event>().erase(event)) return INVALID_HANDLE;
    delete event;
    return OK;
}

static int mark(Event *event) {
    if (!lives(event)) return INVALID_HANDLE;
    event->recorded = true, event->when = std::chrono::steady_clock::now();
    return OK;
}

int record(Event *event, Stream *stream) {
    if (int error = failed()) return error;
    if (!lives(event) || !valid(stream)) return INVALID_HANDLE;
    if (int error = implicit(stream)) return error;
    Stream *held = real(stream);
    event->capture = held->capture, event->ends = held->ends;
    return mark(event);
}

int query(Event *event) {
    if (!lives(event)) return INVALID_HANDLE;
    if (Graph *own = event->capture)
        if (int error = invalidate(CAPTURED_EVENT, [=](Graph *each) { return each == own; })) return error;
    if (int error = forbidden_while_capturing()) return error;
    flush();
    return failed();
}

int elapsed(float *milliseconds, Event *from, Event *to) {
    if (!lives(from) || !lives(to) || !from->recorded || !to->recorded) return INVALID_HANDLE;
    std::chrono::duration<float, std::milli> time = to->when - from->when;
    return put(milliseconds, time.count());
}

int wait(Stream *stream, Event *event) {
    if (!lives(event) || !valid(stream)) return INVALID_HANDLE;
    Stream *held = real(stream);
    if (!lives(event->capture) || !event->capture->capturing) return failed();
    held->capture = event->capture;
    for (Node *each : event->ends)
        if (std::find(held->ends.begin(), held->ends.end(), each) == held->ends.end()) held->ends.push_back(each);
    return OK;
}

// ── capture ─────────────────────────────────────────────────────────────────

int begin_capture(Stream *stream, Graph *into, int mode) {
    if (int error = failed()) return error;
    if (!valid(stream)) return INVALID_HANDLE;
    if (mode < GLOBAL || mode > RELAXED || (into && !lives(into))) return INVALID_VALUE;
    if ((uintptr_t)stream < 2) return CAPTURE_UNSUPPORTED;  // the legacy stream
    Stream *held = real(stream);
    if (held->capture) return ILLEGAL_STATE;
    held->capture = into ? into : born(new Graph);
    held->capture->capturing = true, held->capture->invalid = false;
    held->capture->mode = mode, held->capture->owner = std::this_thread::get_id();
    held->origin = true, held->ends.clear();
    return OK;
}

int end_capture(Stream *stream, Graph **where) {
    if (!valid(stream)) return INVALID_HANDLE;
    Stream *held = real(stream);
    if (!held->capture) return ILLEGAL_STATE;
    if (!held->origin) return 904;  // another stream began it
    Graph *made = held->capture;
    made->capturing = false;
    for (Stream *each : streams())
        if (each->capture == made) each->capture = nullptr, each->ends.clear();
    held->capture = nullptr, held->origin = false, held->ends.clear();
    if (!made->invalid) return put(where, made);
    living<Graph>().erase(made);
    if (where) *where = nullptr;
    return CAPTURE_INVALID;
}

int capture_status(Stream *stream, int *status, unsigned long long *number, Graph **graph, const Node ***after, size_t *count) {
    if (!valid(stream)) return INVALID_HANDLE;
    Stream *held = real(stream);
    if (status) *status = !held->capture ? 0 : held->capture->invalid ? 2 : 1;
    if (number) *number = (uintptr_t)held->capture;
    if (graph) *graph = held->capture;
    if (after) *after = (const Node **)held->ends.data();
    if (count) *count = held->ends.size();
    return OK;
}

// ── graphs ──────────────────────────────────────────────────────────────────

int create(Graph **where) { return where ? put(where, born(new Graph)) : (int)INVALID_VALUE; }

int destroy(Graph *graph) {
    if (!living<Graph>().erase(graph)) return INVALID_VALUE;
    for (auto &each : graph->nodes) living<Node>().erase(each.get());
    return OK;  // what was made of it may still run, so that it stays
}

int clone(Graph **where, Graph *graph) {
    if (!where || !lives(graph)) return INVALID_VALUE;
    auto *made = born(new Graph);
    std::map<Node *, Node *> twin;
    for (auto &each : graph->nodes) {
        Node *node = twin[each.get()] = add(made, each->type, each->task, {});
        node->launch = each->launch, node->child = each->child;
    }
    for (auto &each : graph->nodes)
        for (Node *before : each->after) twin[each.get()]->after.push_back(twin[before]);
    return put(where, made);
}

int instantiate(Exec **where, Graph *graph) {
    if (int error = failed()) return error;
    if (!lives(graph) || !where) return INVALID_VALUE;
    auto made = std::make_unique<Exec>();
    if (!ordered(graph, made->order)) return INVALID_VALUE;
    for (Node *each : made->order) made->tasks[each] = each->task;
    *where = born(made.release());
    return OK;
}

int destroy(Exec *exec) {
    if (!living<Exec>().erase(exec)) return INVALID_VALUE;
    delete exec;
    return OK;
}

int destroy(Node *node) { return node ? refuse("cudaGraphDestroyNode", "nodes cannot be taken out of a graph") : (int)INVALID_VALUE; }

int run(Exec *exec, Stream *stream) {
    if (int error = failed()) return error;
    if (!lives(exec)) return INVALID_VALUE;
    return submit(stream, CHILD, [exec] {
        if (!lives(exec)) return (int)INVALID_VALUE;
        for (Node *each : exec->order)
            if (int error = exec->tasks[each] ? exec->tasks[each]() : OK) return error;
        return (int)OK;
    });
}

int update(Exec *exec, Graph *graph) {
    std::vector<Node *> order;
    if (!lives(exec) || !lives(graph) || !ordered(graph, order)) return INVALID_VALUE;
    if (order.size() != exec->order.size()) return 910;  // the update was not possible
    for (size_t index = 0; index < order.size(); index++)
        if (order[index]->type != exec->order[index]->type) return 910;
    std::map<Node *, Task> tasks;
    for (size_t index = 0; index < order.size(); index++) tasks[exec->order[index]] = order[index]->task;
    exec->tasks = std::move(tasks);
    return OK;
}

int add_edges(Graph *graph, Node *const *from, Node *const *to, size_t count) {
    if (!lives(graph) || !live(from, count) || !live(to, count)) return INVALID_VALUE;
    for (size_t index = 0; index < count; index++) to[index]->after.push_back(from[index]);
    return OK;
}

static Task copying(Copy3 what) { return [what] { return copy_3d(&what, nullptr); }; }
static Task copying(void *to, const void *from, size_t bytes) { return [=] { return copy(to, from, bytes, 4, nullptr); }; }
static Task filling(MemsetNode w) { return [w] { return fill_2d(w.to, w.pitch, w.value, w.element, w.width, w.height, nullptr); }; }
static Task calling(HostNode w) { return [w] { w.function(w.data); return (int)OK; }; }
static Task running(Graph *child) { return [child] { return run_all(child); }; }

static int launching(Launch *made, const KernelNode *what) {
    if (!what) return INVALID_VALUE;
    if (int error = kernel_of(&made->kernel, what->function)) return error;
    made->grid = what->grid, made->block = what->block, made->shared = what->shared;
    return pack(made, what->arguments, what->extra);
}

int add_empty(Node **where, Graph *graph, Node *const *after, size_t count) {
    return added(where, graph, EMPTY, nullptr, after, count);
}

int add_kernel(Node **where, Graph *graph, Node *const *after, size_t count, const KernelNode *what) {
    Launch made{};
    if (int error = launching(&made, what)) return error;
    int error = added(where, graph, KERNEL_NODE, [made] { return run(made); }, after, count);
    if (!error) (*where)->launch = made;
    return error;
}

int add_copy(Node **where, Graph *graph, Node *const *after, size_t count, const Copy3 *what) {
    return added(where, graph, COPIED, copying(*what), after, count);
}

int add_copy_1d(Node **where, Graph *graph, Node *const *after, size_t count, void *to, const void *from, size_t bytes) {
    return added(where, graph, COPIED, copying(to, from, bytes), after, count);
}

int add_fill(Node **where, Graph *graph, Node *const *after, size_t count, const MemsetNode *what) {
    return added(where, graph, FILLED, filling(*what), after, count);
}

int add_host(Node **where, Graph *graph, Node *const *after, size_t count, const HostNode *what) {
    return added(where, graph, HOSTED, calling(*what), after, count);
}

int add_child(Node **where, Graph *graph, Node *const *after, size_t count, Graph *child) {
    Graph *own;
    if (int error = clone(&own, child)) return error;
    int error = added(where, graph, CHILD, running(own), after, count);
    if (!error) (*where)->child = own;
    return error;
}

int add_alloc(Node **where, Graph *graph, Node *const *after, size_t count, AllocNode *what) {
    if (int error = allocate(&what->pointer, what->bytes, DEVICE)) return error;
    void *made = what->pointer;
    belong_to_graph(made, false);
    return added(where, graph, ALLOCATED, [made] { return belong_to_graph(made, true); }, after, count);
}

int add_free(Node **where, Graph *graph, Node *const *after, size_t count, void *what) {
    return added(where, graph, FREED, [what] { return release(what); }, after, count);
}

int add_record(Node **where, Graph *graph, Node *const *after, size_t count, Event *event) {
    return added(where, graph, RECORDED, [event] { return mark(event); }, after, count);
}

static int set(Exec *exec, Node *node, NodeType type, Task task) {
    if (!lives(node) || node->type != type || (exec && !lives(exec))) return INVALID_VALUE;
    (exec ? exec->tasks[node] : node->task) = std::move(task);
    return OK;
}

int set_kernel(Exec *exec, Node *node, const KernelNode *what) {
    if (!lives(node)) return INVALID_VALUE;
    Launch made = node->launch;
    int error = launching(&made, what);
    return error ? error : set(exec, node, KERNEL_NODE, [made] { return run(made); });
}

int set_copy(Exec *exec, Node *node, const Copy3 *what) { return set(exec, node, COPIED, copying(*what)); }
int set_copy_1d(Exec *exec, Node *node, void *to, const void *from, size_t bytes) { return set(exec, node, COPIED, copying(to, from, bytes)); }
int set_fill(Exec *exec, Node *node, const MemsetNode *what) { return set(exec, node, FILLED, filling(*what)); }
int set_host(Exec *exec, Node *node, const HostNode *what) { return set(exec, node, HOSTED, calling(*what)); }
int set_child(Exec *exec, Node *node, Graph *child) { return set(exec, node, CHILD, running(child)); }

// ── questions about graphs ──────────────────────────────────────────────────

static int listed(const std::vector<Node *> &found, Node **where, size_t *count) {
    if (!count) return INVALID_VALUE;
    for (size_t index = 0; where && index < *count; index++) where[index] = index < found.size() ? found[index] : nullptr;
    *count = where ? std::min(*count, found.size()) : found.size();
    return OK;
}

int get_nodes(Graph *graph, Node **where, size_t *count, bool roots) {
    std::vector<Node *> found;
    if (!lives(graph)) return INVALID_VALUE;
    for (auto &each : graph->nodes)
        if (!roots || each->after.empty()) found.push_back(each.get());
    return listed(found, where, count);
}

int get_edges(Graph *graph, Node **from, Node **to, size_t *count) {
    std::vector<Node *> firsts, seconds;
    if (!lives(graph)) return INVALID_VALUE;
    for (auto &each : graph->nodes)
        for (Node *before : each->after) firsts.push_back(before), seconds.push_back(each.get());
    size_t same = count ? *count : 0;
    if (to) listed(seconds, to, &same);
    return listed(firsts, from, count);
}

int get_after(Node *node, Node **where, size_t *count) { return lives(node) ? listed(node->after, where, count) : (int)INVALID_VALUE; }
int get_before(Node *, Node **, size_t *) { return refuse("cudaGraphNodeGetDependentNodes", "it is not covered; cudaGraphGetEdges is"); }
int node_type(int *where, Node *node) { return lives(node) ? put(where, node->type) : (int)INVALID_VALUE; }
