// What programs load: fat binaries, cubins and PTX.
#pragma once

#include <cstdint>
#include <cstring>

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
