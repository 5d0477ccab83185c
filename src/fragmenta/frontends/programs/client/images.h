// What programs load: fat binaries, cubins and PTX.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

template <class Number> inline Number at(const void *image, size_t offset) {
    Number value;
    memcpy(&value, (const char *)image + offset, sizeof value);
    return value;
}

// The bytes of an image: a fat binary, a cubin, or text that ends with a zero.
inline size_t image_size(const void *image) {
    auto magic = at<uint32_t>(image, 0);
    if (magic == 0xBA55ED50) return at<uint16_t>(image, 6) + at<uint64_t>(image, 8);
    if (magic != 0x464C457F) return strlen((const char *)image);
    size_t sections = at<uint64_t>(image, 40) + (size_t)at<uint16_t>(image, 58) * at<uint16_t>(image, 60);
    size_t segments = at<uint64_t>(image, 32) + (size_t)at<uint16_t>(image, 54) * at<uint16_t>(image, 56);
    return sections > segments ? sections : segments;
}

inline const void *unwrapped(const void *image) {
    bool wrapper = at<uint32_t>(image, 0) == 0x466243B1;
    return wrapper ? at<const void *>(image, 8) : image;
}

// The images of relocatable code, which a linker put into a wrapper of its own.
inline std::vector<const void *> relocatable(const void *wrapper) {
    std::vector<const void *> made;
    if (unwrapped(wrapper) == wrapper || at<uint32_t>(wrapper, 4) != 2) return made;
    auto each = at<const void *const *>(wrapper, 16);
    for (; each && *each; each++) made.push_back(*each);
    return made;
}

// Several images as one message: their sizes, then their bytes.
inline std::string together(const std::vector<const void *> &images) {
    std::string made;
    for (const void *each : images) {
        uint64_t bytes = image_size(each);
        made.append((const char *)&bytes, sizeof bytes);
    }
    for (const void *each : images) made.append((const char *)each, image_size(each));
    return made;
}
