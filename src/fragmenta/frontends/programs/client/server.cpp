// The conversation with the server, errors, and what is known about the device.
#include "server.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <set>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <unwind.h>
#include <vector>

#ifdef REAL  // it stands before the real driver
#define SOCKET "FRAGMENTA_RECORD"
#define WHAT_IS_LOST "the recorder has ended; launches are not recorded from now on"
#else
#define SOCKET "FRAGMENTA_RUN"
#define WHAT_IS_LOST "the engine has ended; CUDA's functions return errors from now on"
#endif

State state;

static std::recursive_mutex &lock() { static auto *made = new std::recursive_mutex; return *made; }
Guard::Guard(const char *name) {
    lock().lock();
    before = state.call;
    if (name) state.call = name;
}
Guard::~Guard() {
    state.call = before;
    lock().unlock();
}

static _Unwind_Reason_Code add_frame(_Unwind_Context *frame, void *to) {
    auto *stack = (std::vector<uint64_t> *)to;
    stack->push_back(_Unwind_GetIP(frame));
    return stack->size() < 64 ? _URC_NO_REASON : _URC_END_OF_STACK;
}

std::string called() {
    std::vector<uint64_t> stack;
    _Unwind_Backtrace(add_frame, &stack);
    std::string made(state.call, strlen(state.call) + 1);
    return made.append((const char *)stack.data(), 8 * stack.size());
}

void say(const std::string &text) {
    static std::set<std::string> said;
    if (text.empty() || !said.insert(text).second) return;
    fflush(stdout);
    fprintf(stderr, "fragmenta: %s\n", text.c_str());
}

void flush() {
    if (state.printed.empty()) return;
    fwrite(state.printed.data(), 1, state.printed.size(), stdout);
    state.printed.clear();
}

// ── the connection ──────────────────────────────────────────────────────────

static bool write_all(const void *data, size_t bytes) {
    auto *at = (const char *)data;
    while (bytes) {
        ssize_t sent = send(state.file, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent, bytes -= sent;
    }
    return true;
}

static bool read_all(void *data, size_t bytes) {
    auto *at = (char *)data;
    while (bytes) {
        ssize_t got = recv(state.file, at, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got, bytes -= got;
    }
    return true;
}

// The head of an answer; a file may come with its first byte.
static bool read_head(Message *head, int *file) {
    iovec place{head, sizeof *head};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &place, message.msg_iovlen = 1;
    message.msg_control = room, message.msg_controllen = sizeof room;
    ssize_t got;
    do got = recvmsg(state.file, &message, MSG_CMSG_CLOEXEC); while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    cmsghdr *given = CMSG_FIRSTHDR(&message);
    if (given && given->cmsg_type == SCM_RIGHTS) memcpy(file, CMSG_DATA(given), sizeof *file);
    return read_all((char *)head + got, sizeof *head - got);
}

static int lose() {
    state.lost = true;
    if (state.file >= 0) close(state.file);
    state.file = -1;
    say(WHAT_IS_LOST);
    return state.failed = UNKNOWN;
}

static int exchange(Verb verb, std::initializer_list<uint64_t> words, const void *data, size_t bytes, Answer *answer) {
    Message head{};
    head.verb = verb, head.bytes = bytes;
    int index = 0;
    for (uint64_t word : words) head.word[index++] = word;
    if (!write_all(&head, sizeof head) || !write_all(data, bytes)) return lose();
    if (!read_head(&answer->head, &answer->file)) return lose();
    answer->data.resize(answer->head.bytes);
    if (!read_all(&answer->data[0], answer->data.size())) return lose();
    if (answer->head.status) say(answer->data);
    return answer->head.status;
}

// A child of fork has no connection: CUDA says the same about its contexts.
static void forked() {
    if (state.file < 0) return;
    close(state.file);
    state.file = -1, state.lost = true, state.failed = NOT_INITIALIZED;
}

static int connect_now() {
    const char *path = getenv(SOCKET);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (!path || strlen(path) >= sizeof address.sun_path) return NO_DEVICE;
    strcpy(address.sun_path, path);
    state.file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(state.file, (sockaddr *)&address, sizeof address)) return lose();
    pthread_atfork(nullptr, nullptr, forked);
    atexit(flush);
    Answer answer;
    if (int error = exchange(HELLO, {(uint64_t)getpid()}, "", 0, &answer)) return error;
    const char *at = answer.data.data();
    auto take = [&](size_t bytes) { std::string part(at, bytes); at += bytes; return part; };
    state.name = take(answer[0]).c_str();
    memcpy(state.attributes, take(sizeof state.attributes).data(), sizeof state.attributes);
    state.properties[0] = take(answer[1]), state.properties[1] = take(answer[2]);
    state.memory = answer[3];
    return OK;
}

int ready() {
    if (!state.tried) {
        state.tried = true;
        state.failed = connect_now();
    }
    if (state.lost && state.failed == NOT_INITIALIZED)
        say("CUDA was used before fork(), so the child cannot use it; use spawn instead");
    return state.file < 0 ? state.failed : OK;
}

int ask(Verb verb, std::initializer_list<uint64_t> words, const void *data, size_t bytes, Answer *answer) {
    Answer own;
    if (int error = ready()) return error;
    return exchange(verb, words, data, bytes, answer ? answer : &own);
}

int ask(Verb verb, std::initializer_list<uint64_t> words, const std::string &data, Answer *answer) {
    return ask(verb, words, data.data(), data.size(), answer);
}

// ── errors ──────────────────────────────────────────────────────────────────

static thread_local int last_error = OK;
static thread_local uint64_t refused[7];  // a launch, while the function runs that is refused it
static bool unseen = false;               // whether the server waits for the program to ask

void unlaunched(const uint64_t (&words)[7]) {
    memcpy(refused, words, sizeof refused);
}

int done(int code) {
    if (code && refused[0]) {
        const uint64_t *w = refused;
        ask(UNLAUNCHED, {(uint64_t)code, w[0], w[1], w[2], w[3], w[4], w[5], w[6]}, called());
        unseen = true;
    }
    refused[0] = 0;
    if (code && code != 600) last_error = code;  // 600: not ready, which is no error
    return code;
}

int last(bool clear) {
    int code = last_error ? last_error : state.failed;
    if (last_error && unseen) ask(UNLAUNCHED, {OK});
    if (last_error) unseen = false;
    if (clear) last_error = OK;
    return code;
}

int failed() {
    int error = ready();
    return error ? error : state.failed;
}

int refuse(const char *name, const char *why) {
    Guard guard;
    std::string text = std::string(name) + ": " + why;
    say(text);
    ask(REFUSED, {}, text);
    return NOT_SUPPORTED;
}

// ── the device ──────────────────────────────────────────────────────────────

int present(int device) {
    int error = ready();
    return error ? error : device == 0 ? OK : INVALID_DEVICE;
}

int attribute(int *value, int number, int device) {
    if (int error = present(device)) return error;
    return number < 1 || number >= ATTRIBUTES ? INVALID_VALUE : put(value, state.attributes[number]);
}

int properties(void *where, int version, int device) {
    if (int error = present(device)) return error;
    const std::string &made = state.properties[version == 13];
    memcpy(where, made.data(), made.size());
    return OK;
}

int device_name(char *where, int size) {
    if (int error = ready()) return error;
    if (size > 0) snprintf(where, size, "%s", state.name.c_str());
    return OK;
}

int total_memory(size_t *bytes) {
    int error = ready();
    return error ? error : put(bytes, state.memory);
}

int memory_info(size_t *free, size_t *total) {
    if (int error = ready()) return error;
    if (free) *free = state.memory - state.used;
    if (total) *total = state.memory;
    return OK;
}

static size_t limits[16] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};

int limit(size_t *value, int which) {
    return which < 0 || which > 6 ? INVALID_VALUE : put(value, limits[which]);
}

int set_limit(int which, size_t value) {
    if (which < 0 || which > 6) return INVALID_VALUE;
    limits[which] = value;
    return OK;
}
