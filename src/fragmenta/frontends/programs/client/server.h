// The conversation with the server: a request and an answer, one at a time.
#pragma once

#include "core.h"
#include "verbs.h"  // written from verbs.py

#include <string>

struct Message {
    uint32_t verb;   // of an answer: 0
    int32_t status;  // of an answer: the error of CUDA
    uint64_t bytes;  // of what follows
    uint64_t word[WORDS];
};

struct Answer {
    Message head{};
    std::string data;
    int file = -1;   // shared memory, if the server sent some
    uint64_t operator[](int index) const { return head.word[index]; }
};

// The error, or OK.  What the server says about an error goes to the error stream once.
int ask(Verb verb, std::initializer_list<uint64_t> words, const void *data, size_t bytes, Answer *answer);
int ask(Verb verb, std::initializer_list<uint64_t> words, const std::string &data = "", Answer *answer = nullptr);
void say(const std::string &text);  // to the error stream, once for each text
// A launch that is refused, as the words of LAUNCH.  It is told if the error stays unseen.
void unlaunched(const uint64_t (&words)[7]);
std::string called();  // the function of CUDA that runs, and where its callers go on

struct State {
    int file = -1;             // the connection
    bool tried = false, lost = false;
    int failed = OK;           // of an earlier launch: it stays
    std::string name, properties[2];  // of CUDA 12 and of CUDA 13
    int attributes[ATTRIBUTES] = {};
    size_t memory = 0, used = 0;
    const char *call = "";     // the function of CUDA that runs
    std::string printed;       // what kernels printed since the program last waited
};
extern State state;
void flush();                  // print it
