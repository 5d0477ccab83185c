// Where the units of a row go in a packed block of 64 rows.
//
// Entry 4 r + u of PLACES is for unit u of row r: the 16-byte unit of a packed block where
// its values go, and the byte of the metadata where its codes go.

constexpr int VALUES = 4096;  // bytes of a block before its metadata

// Not in constant memory, which serves different addresses one after the other.
struct alignas(4) Where { u16 values, codes; };
__device__ const Where places[256] = {PLACES};
