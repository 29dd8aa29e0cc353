// Runs launches of the kernels that it reads from standard input, and writes what they changed. Numbers are little-endian, as this machine's.
// A launch: length and text of the name, grid x and y, threads of a block, number of arguments; of each argument its kind, then
// 'r' or 'w': bytes and values, 'i': an int, 'f': a float, 't': the number of variables, whose fields follow as arguments, '0': nothing. The answer: an error's length (0 if there is none) and text,
// then the values of each 'w'.
#include "emulator.h"
#include "../kernels.cu"
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>

struct Argument {
    char kind;
    int count = 0;
    float number = 0;
    std::vector<char> values, before;
};
using Arguments = std::vector<Argument>;
// Bytes around the values of each tensor, which no kernel may change.
static const size_t GUARD = 64;
static const char MARK = 0x5a;

// Takes the next arguments as one parameter of type `A`.
template <class A> static A as(Arguments& given, size_t& next, std::string& error) {
    std::string at = std::to_string(next);
    if (next >= given.size()) return next++, A{};
    Argument& argument = given[next++];
    const bool pointer = std::is_pointer_v<A>, whole = std::is_same_v<A, int>, table = std::is_same_v<A, Variables>;
    bool fits = pointer ? strchr("rw0", argument.kind) != nullptr : argument.kind == (table ? 't' : whole ? 'i' : 'f');
    if (!fits) error += "argument " + at + " is of kind '" + argument.kind + "'; ";
    if constexpr (pointer) {
        bool reads = std::is_const_v<std::remove_pointer_t<A>>;
        if (reads && argument.kind == 'w') error += "argument " + at + " is only read; ";
        if (!reads && argument.kind == 'r') error += "argument " + at + " is changed; ";
        return argument.kind == '0' ? nullptr : reinterpret_cast<A>(argument.values.data() + GUARD);
    } else if constexpr (table) {
        Variables of = {};
        for (int i = 0; i < argument.count; i++) {
            of.p[i] = as<float*>(given, next, error), of.g[i] = as<const float*>(given, next, error);
            of.start[i] = as<const float*>(given, next, error);
            of.first[i] = as<float*>(given, next, error), of.second[i] = as<float*>(given, next, error);
            of.len[i] = as<int>(given, next, error);
        }
        return of;
    } else if constexpr (whole) {
        return argument.count;
    } else {
        return argument.number;
    }
}
template <class... A>
static std::string call(void (*kernel)(A...), Place grid, unsigned block, Arguments& given) {
    std::string error;
    size_t next = 0;
    auto values = std::tuple<A...>{as<A>(given, next, error)...};
    if (next != given.size())
        return "it takes " + std::to_string(next) + " arguments, not " + std::to_string(given.size());
    if (error.empty()) start(grid, block, [&] { std::apply(kernel, values); });
    return error;
}
template <class... A> static auto kernel(void (*function)(A...)) {
    return [=](Place grid, unsigned block, Arguments& given) {
        return call(function, grid, block, given);
    };
}
static std::map<std::string, std::function<std::string(Place, unsigned, Arguments&)>> kernels = {
#define KERNEL(name) {#name, kernel(name)},
#include "table.inc"
};

static void take(void* to, size_t bytes) {
    if (std::fread(to, 1, bytes, stdin) != bytes) std::exit(0);
}
template <class T> static T number() {
    T value;
    take(&value, sizeof value);
    return value;
}
int main() {
    for (;;) {
        std::string name(number<uint32_t>(), ' ');
        take(name.data(), name.size());
        Place grid;
        grid.x = number<uint32_t>(), grid.y = number<uint32_t>();
        unsigned block = number<uint32_t>();
        Arguments given(number<uint32_t>());
        for (Argument& own : given) {
            own.kind = number<char>();
            if (strchr("it", own.kind)) own.count = number<int>();
            if (own.kind == 'f') own.number = number<float>();
            if (!strchr("rw", own.kind)) continue;
            size_t bytes = number<uint64_t>();
            own.values.assign(bytes + 2 * GUARD, MARK);
            take(own.values.data() + GUARD, bytes);
            own.before = own.values;
        }
        auto found = kernels.find(name);
        std::string error = found == kernels.end() ? "there is no such kernel" : found->second(grid, block, given);
        for (size_t at = 0; at < given.size() && error.empty(); at++) {
            auto &now = given[at].values, &before = given[at].before;
            size_t end = now.size() - (now.empty() ? 0 : GUARD);
            bool whole = given[at].kind == 'r' ? now == before
                                               : !memcmp(now.data(), before.data(), now.empty() ? 0 : GUARD) &&
                                                     !memcmp(now.data() + end, before.data() + end, now.size() - end);
            if (!whole) error = "argument " + std::to_string(at) + ": it wrote where it must not";
        }
        uint32_t length = error.size();
        std::fwrite(&length, sizeof length, 1, stdout);
        std::fwrite(error.data(), 1, length, stdout);
        for (Argument& own : given)
            if (own.kind == 'w' && error.empty()) std::fwrite(own.values.data() + GUARD, 1, own.values.size() - 2 * GUARD, stdout);
        std::fflush(stdout);
    }
}
