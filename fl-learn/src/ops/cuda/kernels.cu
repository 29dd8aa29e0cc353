// Kernels of the operations on a GPU. Their text is also compiled for the CPU by the tests (tests/emulator.h), and compared with our loops.
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

// In place: each value of `channels`, which has `positions` values, and its bias.
launched add_bias(float* z, const float* b, int channels, int positions, int len, int with_relu) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const float value = z[at] + b[at / positions % channels];
    z[at] = with_relu ? relu(value) : value;
}
// `a + scale b`, then relu.
launched add_scaled(const float* a, const float* b, float scale, int len, int with_relu, float* y) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const float value = a[at] + scale * b[at];
    y[at] = with_relu ? relu(value) : value;
}

// The largest value of each window, which has `size_y * size_x` values every `stride` rows and columns, with `pad` rows and columns of
// nothing around `x`; plus the bias of its channel (if there is one), then relu. picks: place of the largest value in its plane, the
// first of equal ones. `len` windows in all, `out_rows * out_columns` of each plane.
launched max_pool(const float* x, const float* b, int channels, int rows, int columns, int out_rows, int out_columns, int size_y,
                  int size_x, int stride_y, int stride_x, int pad, int len, int with_relu, float* y, float* picks) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const int plane = at / (out_rows * out_columns), window = at % (out_rows * out_columns);
    const int top = window / out_columns * stride_y - pad, left = window % out_columns * stride_x - pad;
    const float* values = x + (size_t)plane * rows * columns;
    float best = 0;
    int pick = -1;
    for (int row = max(top, 0); row < min(top + size_y, rows); row++)
        for (int column = max(left, 0); column < min(left + size_x, columns); column++) {
            const float value = values[row * columns + column];
            // NaN wins, so that a loss shows it.
            if (pick < 0 || value > best || value != value) best = value, pick = row * columns + column;
        }
    const float value = best + (b ? b[plane % channels] : 0);
    y[at] = with_relu ? relu(value) : value;
    picks[at] = __int_as_float(pick);
}
// The gradients of the windows that picked each value, in their order. `len` values in all.
launched max_pool_back(const float* dy, const float* picks, int rows, int columns, int out_rows, int out_columns, int size_y,
                       int size_x, int stride_y, int stride_x, int pad, int len, float* dx) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const int plane = at / (rows * columns), place = at % (rows * columns);
    const int row = place / columns + pad, column = place % columns + pad;
    const int last_y = min(row / stride_y, out_rows - 1), last_x = min(column / stride_x, out_columns - 1);
    float sum = 0;
    for (int y = row < size_y ? 0 : (row - size_y) / stride_y + 1; y <= last_y; y++)
        for (int x = column < size_x ? 0 : (column - size_x) / stride_x + 1; x <= last_x; x++) {
            const size_t window = ((size_t)plane * out_rows + y) * out_columns + x;
            if (__float_as_int(picks[window]) == place) sum += dy[window];
        }
    dx[at] = sum;
}

// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, and its slope.
__device__ __forceinline__ float gelu_tanh(float x) { return tanhf(0.7978846f * (x + 0.044715f * x * x * x)); }
launched gelu(const float* x, int len, float* y) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < len) y[at] = 0.5f * x[at] * (1 + gelu_tanh(x[at]));
}
launched gelu_back(const float* x, const float* dy, int len, float* dx) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const float t = gelu_tanh(x[at]), inner = 0.7978846f * (1 + 3 * 0.044715f * x[at] * x[at]);
    dx[at] = dy[at] * (0.5f * (1 + t) + 0.5f * x[at] * (1 - t * t) * inner);
}
__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }
launched silu_gate(const float* gate, const float* up, int len, float* y) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < len) y[at] = gate[at] * sigmoid(gate[at]) * up[at];
}
launched silu_gate_back(const float* gate, const float* up, const float* dy, int len, float* d_gate, float* d_up) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const float g = gate[at], s = sigmoid(g);
    d_gate[at] = dy[at] * up[at] * s * (1 + g * (1 - s));
    d_up[at] = dy[at] * g * s;
}

__device__ __forceinline__ float block_max(float x) {
    __shared__ float part[32];
    for (int m = 16; m > 0; m /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, m));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    float top = part[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) top = fmaxf(top, part[w]);
    return top;
}
// The loss of each row times `share`; 0 where the label is `ignored`. stats: [rows, 2], the largest logit and the sum of exponentials.
launched cross_entropy(const float* logits, const unsigned* labels, int classes, float share, float* losses, float* stats) {
    const float* row = logits + (size_t)blockIdx.x * classes;
    float top = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += expf(row[i] - top);
    sum = block_sum(sum);
    if (threadIdx.x) return;
    const unsigned label = labels[blockIdx.x];
    losses[blockIdx.x] = label == ~0u ? 0 : (logf(sum) - (row[label] - top)) * share;
    stats[2 * blockIdx.x] = top, stats[2 * blockIdx.x + 1] = sum;
}
// grad: of the loss, a scalar.
launched cross_entropy_back(const float* logits, const unsigned* labels, const float* stats, const float* grad, int classes,
                            float share, float* dx) {
    const size_t first = (size_t)blockIdx.x * classes;
    const unsigned label = labels[blockIdx.x];
    const float scale = label == ~0u ? 0 : *grad * share;
    const float top = stats[2 * blockIdx.x], inverse = 1 / stats[2 * blockIdx.x + 1];
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        const float p = expf(logits[first + i] - top) * inverse;
        dx[first + i] = scale == 0 ? 0 : (p - ((unsigned)i == label ? 1 : 0)) * scale;
    }
}

// In place: the softmax of the first `row % len + 1` values of each row of `len`, times `scale`; then zeros. One block a row.
launched causal_softmax(float* scores, int len, float scale) {
    float* row = scores + (size_t)blockIdx.x * len;
    const int seen = blockIdx.x % len + 1;
    float top = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < seen; i += blockDim.x) top = fmaxf(top, row[i]);
    top = block_max(top);
    for (int i = threadIdx.x; i < seen; i += blockDim.x) sum += expf((row[i] - top) * scale);
    const float share = 1 / block_sum(sum);
    for (int i = threadIdx.x; i < len; i += blockDim.x) row[i] = i < seen ? expf((row[i] - top) * scale) * share : 0;
}
// In place: from the gradient of the shares to that of the scores.
launched causal_softmax_back(float* d, const float* shares, int len, float scale) {
    const size_t at = (size_t)blockIdx.x * len;
    const int seen = blockIdx.x % len + 1;
    float along = 0;
    for (int i = threadIdx.x; i < seen; i += blockDim.x) along += d[at + i] * shares[at + i];
    along = block_sum(along);
    for (int i = threadIdx.x; i < len; i += blockDim.x) d[at + i] = i < seen ? shares[at + i] * (d[at + i] - along) * scale : 0;
}

// One token of an LSTM. zx, zh: [batch, 4 * hidden], what the gates get from input and state (none of the first token); before: cells
// of the token before, or none. In place: gates after their functions, cells, states.
launched lstm_cell(const float* zx, const float* zh, const float* before, int batch, int hidden, float* gates, float* cells,
                   float* states) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * hidden) return;
    const size_t first = (size_t)(at / hidden) * 4 * hidden + at % hidden;
    float gate[4];
    for (int k = 0; k < 4; k++) {
        const float z = zx[first + k * hidden] + (zh ? zh[first + k * hidden] : 0);
        gate[k] = gates[first + k * hidden] = k == 2 ? tanhf(z) : sigmoid(z);
    }
    const float cell = gate[0] * gate[2] + (before ? gate[1] * before[at] : 0);
    cells[at] = cell;
    states[at] = gate[3] * tanhf(cell);
}
// dh, dh_next: gradients of the state, its own and through the next token's gates (none of the last token). In place: gradient of the
// cell, and of what the gates get.
launched lstm_cell_back(const float* gates, const float* cells, const float* before, const float* dh, const float* dh_next, int batch,
                        int hidden, float* d_cell, float* dz) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * hidden) return;
    const size_t first = (size_t)(at / hidden) * 4 * hidden + at % hidden;
    const float i = gates[first], f = gates[first + hidden], g = gates[first + 2 * hidden], o = gates[first + 3 * hidden];
    const float through = tanhf(cells[at]), h = dh[at] + (dh_next ? dh_next[at] : 0);
    const float d = d_cell[at] + h * o * (1 - through * through);
    dz[first] = d * g * i * (1 - i);
    dz[first + hidden] = (before ? d * before[at] : 0) * f * (1 - f);
    dz[first + 2 * hidden] = d * i * (1 - g * g);
    dz[first + 3 * hidden] = h * through * o * (1 - o);
    d_cell[at] = d * f;
}

// Each pair of values, `half` apart in its head, turned by its angle; back if `sign` is -1. turns: [len, half, 2], cosine and sine.
// `pairs` in all, of rows of `width` values.
launched rotary(const float* x, const float* turns, int len, int width, int half, float sign, int pairs, float* y) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= pairs) return;
    const int row = at / (width / 2), pair = at % (width / 2), place = pair % half;
    const size_t low = (size_t)row * width + pair / half * 2 * half + place, high = low + half;
    const float* turn = turns + 2 * ((size_t)(row % len) * half + place);
    const float cosine = turn[0], sine = turn[1] * sign, a = x[low], b = x[high];
    y[low] = a * cosine - b * sine;
    y[high] = b * cosine + a * sine;
}

// The sum of the gradients of each word's tokens, in their order. One block a word. order: tokens, word after word; starts: where those
// of each word start.
launched embedding_back(const float* dy, const unsigned* starts, const unsigned* order, int dim, float* dw) {
    const size_t word = blockIdx.x;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float sum = 0;
        for (unsigned at = starts[word]; at < starts[word + 1]; at++) sum += dy[(size_t)order[at] * dim + i];
        dw[word * dim + i] = sum;
    }
}

__device__ __forceinline__ unsigned long long mix(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
// Each value times `scale`, or 0 with the probability `limit / 2^32`: the draws of the CPU's generator, two from each number.
launched dropout(const float* x, int seed_low, int seed_high, int limit, float scale, int len, float* y) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= len) return;
    const unsigned long long seed = (unsigned long long)(unsigned)seed_high << 32 | (unsigned)seed_low;
    const unsigned long long bits = mix(mix(seed) + ((unsigned long long)at / 2 + 1) * 0x9e3779b97f4a7c15ull);
    const unsigned draw = at % 2 ? bits >> 32 : bits;
    y[at] = draw < (unsigned)limit ? 0 : x[at] * scale;
}

// The variables of one step, each a row of blocks: their values, gradients, first values (or none) and moments. `Table` of launch.rs.
struct Variables {
    float* p[80];
    const float* g[80];
    const float* start[80];
    float* first[80];
    float* second[80];
    int len[80];
};
#define EACH_VALUE(of) (int at = blockIdx.x * blockDim.x + threadIdx.x; at < of.len[blockIdx.y]; at += gridDim.x * blockDim.x)
// With the slope of `mu / 2 |p - start|^2`.
__device__ __forceinline__ float gradient(const Variables& of, int at, float mu) {
    const float g = of.g[blockIdx.y][at];
    return of.start[blockIdx.y] ? g + mu * (of.p[blockIdx.y][at] - of.start[blockIdx.y][at]) : g;
}
// Sums of squares of the gradients. sums: [variables, gridDim.x].
launched gradient_squares(Variables of, float mu, float* sums) {
    float sum = 0;
    for EACH_VALUE(of) {
        const float g = gradient(of, at, mu);
        sum += g * g;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
// The factor that cuts the norm, the root of the sum of `sums`, to `limit`. One block.
launched clip_factor(const float* sums, int count, float limit, float* factor) {
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += sums[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) factor[0] = fminf(limit / fmaxf(sqrtf(sum), 1.17549435e-38f), 1);
}
// Optimizers, in place, of gradients times `factor`, if there is one. `p = p shrink - rate g`.
launched sgd(Variables of, const float* factor, float mu, float shrink, float rate) {
    const float step = factor ? rate * factor[0] : rate;
    for EACH_VALUE(of) of.p[blockIdx.y][at] = of.p[blockIdx.y][at] * shrink - step * gradient(of, at, mu);
}
// `v = momentum v + g + decay p`, `p -= rate v`.
launched sgd_with_momentum(Variables of, const float* factor, float mu, float momentum, float decay, float rate) {
    float *p = of.p[blockIdx.y], *v = of.first[blockIdx.y];
    const float scale = factor ? factor[0] : 1;
    for EACH_VALUE(of) {
        v[at] = momentum * v[at] + scale * gradient(of, at, mu) + decay * p[at];
        p[at] -= rate * v[at];
    }
}
// `m = beta1 m + (1 - beta1) g`, `v = beta2 v + (1 - beta2) g^2`, `p = shrink p - rate m / (root sqrt(v) + eps)`.
launched adamw(Variables of, const float* factor, float mu, float beta1, float beta2, float eps, float shrink, float rate,
               float root) {
    float *p = of.p[blockIdx.y], *m = of.first[blockIdx.y], *v = of.second[blockIdx.y];
    const float scale = factor ? factor[0] : 1;
    for EACH_VALUE(of) {
        const float g = scale * gradient(of, at, mu);
        m[at] = beta1 * m[at] + (1 - beta1) * g;
        v[at] = beta2 * v[at] + (1 - beta2) * (g * g);
        p[at] = shrink * p[at] - rate * m[at] / (root * sqrtf(v[at]) + eps);
    }
}
