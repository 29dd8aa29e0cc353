// Kernels of the operations on a GPU. Their text is also compiled for the CPU by the tests (emulator.h), and compared with our loops.
// Sums have a fixed order: no atomics. A line that begins with `launched` and the name declares each kernel.
#ifndef EMULATED
#define launched extern "C" __global__ void
#endif

// The sum of `x` over the block, which every thread of the block must call.
__device__ __forceinline__ float block_sum(float x) {
    __shared__ float part[32];
    for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(~0u, x, m);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) sum += part[w];
    return sum;
}
// NaN stays.
__device__ __forceinline__ float relu(float x) { return x < 0 ? 0 : x; }

// Each row less its mean (if `centered`), over its deviation, scaled and shifted. One block a row. Scale and shift of value `i` have
// the number `row % groups * (dim / positions) + i / positions`. stats: [rows, 2], mean and 1 / deviation.
launched row_norm(const float* x, const float* w, const float* b, int dim, int positions, int groups, int centered, int with_relu,
                  float eps, float* y, float* stats) {
    const size_t at = (size_t)blockIdx.x * dim;
    const int first = blockIdx.x % groups * (dim / positions);
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) sum += x[at + i];
    const float mean = centered ? block_sum(sum) / dim : 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float d = x[at + i] - mean;
        square += d * d;
    }
    const float inverse = 1 / sqrtf(block_sum(square) / dim + eps);
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        int channel = first + (positions == 1 ? i : i / positions);
        float value = (x[at + i] - mean) * inverse * w[channel] + (b ? b[channel] : 0);
        y[at + i] = with_relu ? relu(value) : value;
    }
    if (threadIdx.x == 0) stats[2 * blockIdx.x] = mean, stats[2 * blockIdx.x + 1] = inverse;
}
launched row_norm_dx(const float* x, const float* w, const float* stats, const float* dy, int dim, int positions, int groups,
                     int centered, float* dx) {
    const size_t at = (size_t)blockIdx.x * dim;
    const int first = blockIdx.x % groups * (dim / positions);
    const float mean = stats[2 * blockIdx.x], inverse = stats[2 * blockIdx.x + 1];
    float sum = 0, along = 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float g = dy[at + i] * w[first + (positions == 1 ? i : i / positions)];
        sum += g;
        along += g * (x[at + i] - mean) * inverse;
    }
    sum = centered ? block_sum(sum) / dim : 0;
    along = block_sum(along) / dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float g = dy[at + i] * w[first + (positions == 1 ? i : i / positions)];
        dx[at + i] = (g - sum - (x[at + i] - mean) * inverse * along) * inverse;
    }
}
// Sums of `dy`, and of `dy` times the normalized `x`, over the rows of each of `dim` columns. Grid: tiles of 32 columns, parts of the
// rows; block: 256. db, dw: [parts, dim], to be summed. Without `x` only db.
launched column_sums(const float* dy, const float* x, const float* stats, int rows, int dim, float* db, float* dw) {
    __shared__ float sums[256], products[256];
    const int column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    float sum = 0, product = 0;
    if (column < dim)
        for (int row = blockIdx.y * 8 + lane; row < rows; row += 8 * gridDim.y) {
            const size_t at = (size_t)row * dim + column;
            sum += dy[at];
            if (x) product += dy[at] * (x[at] - stats[2 * row]) * stats[2 * row + 1];
        }
    sums[threadIdx.x] = sum, products[threadIdx.x] = product;
    __syncthreads();
    if (lane || column >= dim) return;
    for (int l = 1; l < 8; l++) sum += sums[l * 32 + threadIdx.x], product += products[l * 32 + threadIdx.x];
    db[(size_t)blockIdx.y * dim + column] = sum;
    if (x) dw[(size_t)blockIdx.y * dim + column] = product;
}
// As `column_sums`, over the positions of each channel of `batch` images. Grid: channels, parts of the positions. stats: of `groups` of an
// image's channels, or of each channel if there are no groups. db, dw: [parts, channels].
launched channel_sums(const float* dy, const float* x, const float* stats, int batch, int positions, int groups, float* db,
                      float* dw) {
    const int channel = blockIdx.x, channels = gridDim.x;
    float sum = 0, product = 0;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < batch * positions; i += gridDim.y * blockDim.x) {
        const int image = i / positions, of = groups ? image * groups + channel / (channels / groups) : channel;
        const size_t at = ((size_t)image * channels + channel) * positions + i % positions;
        sum += dy[at];
        if (x) product += dy[at] * (x[at] - stats[2 * of]) * stats[2 * of + 1];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) db[blockIdx.y * channels + channel] = sum;
    if (!x) return;
    product = block_sum(product);
    if (threadIdx.x == 0) dw[blockIdx.y * channels + channel] = product;
}
// Mean and 1 / deviation, and variance, of each channel of `batch` images. One block a channel. stats: [channels, 2].
launched channel_statistics(const float* x, int batch, int positions, float eps, float* stats, float* means, float* variances) {
    const int channel = blockIdx.x, channels = gridDim.x;
    const int count = batch * positions;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        sum += x[((size_t)(i / positions) * channels + channel) * positions + i % positions];
    const float mean = block_sum(sum) / count;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        float d = x[((size_t)(i / positions) * channels + channel) * positions + i % positions] - mean;
        square += d * d;
    }
    const float variance = block_sum(square) / count;
    if (threadIdx.x) return;
    stats[2 * channel] = mean, stats[2 * channel + 1] = 1 / sqrtf(variance + eps);
    means[channel] = mean, variances[channel] = variance;
}
// Each channel less its mean, over its deviation, scaled and shifted. `len` values in all.
launched channel_norm(const float* x, const float* w, const float* b, const float* stats, int channels, int positions, int len,
                      int with_relu, float* y) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const int channel = at / positions % channels;
    const float value = (x[at] - stats[2 * channel]) * stats[2 * channel + 1] * w[channel] + b[channel];
    y[at] = with_relu ? relu(value) : value;
}
// share: 1 / values of a channel, or 0 if its statistics do not depend on `x`. db, dw: of `channel_sums`, [channels].
launched channel_norm_dx(const float* x, const float* w, const float* stats, const float* dy, const float* db, const float* dw,
                         int channels, int positions, int len, float share, float* dx) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const int channel = at / positions % channels;
    const float inverse = stats[2 * channel + 1], normal = (x[at] - stats[2 * channel]) * inverse;
    dx[at] = (dy[at] - (db[channel] + normal * dw[channel]) * share) * inverse * w[channel];
}
// What relu lets through.
launched relu_back(const float* dy, const float* y, int len, float* dx) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < len) dx[at] = y[at] == 0 ? 0 : dy[at];
}
