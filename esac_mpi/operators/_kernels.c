/* The hottest loops of an evaluating rank: addressed normal numbers, the forward pass of a policy,
   and policy and physics in turn.

   Only + - * / sqrt and integer operations in a fixed order, and no fused multiply-add
   (-ffp-contract=off), so that the bits depend neither on the instruction set nor on the
   compiler. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "_common.h"

#ifdef __FAST_MATH__
#error "fast-math changes the bits"
#endif

/* One binary, built on a login node, serves every node: the loader picks the instruction set. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) &&       \
    defined(__GLIBC__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* ---- Philox 4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" ---- */

/* the order of the numbers depends on them */
enum { COUNTERS = 256, PAIRS = COUNTERS / 2, CHUNK = 4 * COUNTERS, ROUNDS = 10 };

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u

/* Each writes the four words of COUNTERS counters, word by word: [4][PAIRS][2], a pair being
   counters i and i + PAIRS. */
typedef void Philox(const uint32_t counter[4], const uint32_t key[2], uint32_t *words);

#ifdef X86

/* A word fills the lower half of a 64-bit lane, the only half that the multiplication reads: what
   is above it stays there until the end. Compilers do not find this by themselves: from the plain
   loop below they make shuffles, 2.5 times slower. */
#define LANES_ROUND(P, S, V, c)                                                                    \
    do {                                                                                           \
        const V p0 = P##_mul_epu32(c##0, m0), p1 = P##_mul_epu32(c##2, m1);                        \
        c##0 = P##_xor_##S(P##_xor_##S(P##_srli_epi64(p1, 32), c##1), k0);                         \
        c##2 = P##_xor_##S(P##_xor_##S(P##_srli_epi64(p0, 32), c##3), k1);                         \
        c##1 = p1;                                                                                 \
        c##3 = p0;                                                                                 \
    } while (0)

#define LANES_STORE(P, S, V, j)                                                                    \
    P##_storeu_##S((V *)(words + j * COUNTERS + 2 * i),                                            \
        P##_or_##S(P##_and_##S(a##j, low), P##_slli_epi64(b##j, 32)))

#define LANES(NAME, TARGET, P, S, V, SET)                                                          \
    TARGET static void NAME(const uint32_t counter[4], const uint32_t key[2], uint32_t *words)     \
    {                                                                                              \
        enum { WIDTH = sizeof(V) / 8 };                                                            \
        const V m0 = P##_##SET(M0), m1 = P##_##SET(M1), low = P##_##SET(0xFFFFFFFFu),              \
                step = P##_##SET(WIDTH);                                                           \
        uint64_t index[WIDTH];                                                                     \
        for (int l = 0; l < WIDTH; l++)                                                            \
            index[l] = (uint64_t)counter[0] + (uint64_t)l;                                         \
        V first = P##_loadu_##S((const V *)index);                                                 \
        for (int i = 0; i < PAIRS; i += WIDTH, first = P##_add_epi64(first, step)) {               \
            V a0 = first, a1 = P##_##SET(counter[1]), a2 = P##_##SET(counter[2]),                  \
              a3 = P##_##SET(counter[3]);                                                          \
            V b0 = P##_add_epi64(first, P##_##SET(PAIRS)), b1 = a1, b2 = a2, b3 = a3;              \
            for (uint32_t r = 0; r < ROUNDS; r++) {                                                \
                const V k0 = P##_##SET(key[0] + r * W0), k1 = P##_##SET(key[1] + r * W1);          \
                LANES_ROUND(P, S, V, a);                                                           \
                LANES_ROUND(P, S, V, b);                                                           \
            }                                                                                      \
            LANES_STORE(P, S, V, 0);                                                               \
            LANES_STORE(P, S, V, 1);                                                               \
            LANES_STORE(P, S, V, 2);                                                               \
            LANES_STORE(P, S, V, 3);                                                               \
        }                                                                                          \
    }

LANES(philox_avx512, __attribute__((target("avx512f"))), _mm512, si512, __m512i, set1_epi64)
LANES(philox_avx2, __attribute__((target("avx2"))), _mm256, si256, __m256i, set1_epi64x)
LANES(philox_sse2, , _mm, si128, __m128i, set1_epi64x)

static Philox *philox_chunk = philox_sse2;

static void choose_philox(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        philox_chunk = philox_avx512;
    else if (__builtin_cpu_supports("avx2"))
        philox_chunk = philox_avx2;
}

#else

static void philox_chunk(const uint32_t counter[4], const uint32_t key[2], uint32_t *words)
{
    for (uint32_t i = 0; i < COUNTERS; i++) {
        uint32_t c0 = counter[0] + i / 2 + i % 2 * PAIRS, c1 = counter[1], c2 = counter[2],
                 c3 = counter[3];
        for (uint32_t r = 0; r < ROUNDS; r++) {
            const uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ (key[0] + r * W0);
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ (key[1] + r * W1);
            c1 = (uint32_t)p1;
            c3 = (uint32_t)p0;
        }
        words[i] = c0;
        words[COUNTERS + i] = c1;
        words[2 * COUNTERS + i] = c2;
        words[3 * COUNTERS + i] = c3;
    }
}

static void choose_philox(void)
{
}

#endif

/* ---- Box-Muller ---- */

/* Turn two times COUNTERS words into normals: radii times cosines, then radii times sines. */
CLONES static void box_muller(const uint32_t *restrict words, float *restrict out)
{
    for (int i = 0; i < COUNTERS; i++) {
        const uint32_t w = words[i], v = words[COUNTERS + i];
        /* radius: u in [2^-33, 1], so that it reaches 6.76; two exact halves make the one rounding
           of a 32-bit integer */
        const float integer = (float)(int32_t)(w >> 16) * 65536.0f + (float)(int32_t)(w & 0xFFFFu);
        const float u = integer * 0x1p-32f + 0x1p-33f;
        const float radius = sqrtf(-2.0f * logarithm(u));
        /* angle: 30 bits in [-pi/4, pi/4), one bit for the sign of the cosine, one to exchange
           cosine and sine */
        const float a = (float)(int32_t)(v & ~3u) * 0x1.921FB6p-32f; /* pi / 4 * 2^-31 */
        const float a2 = a * a;
        const float s =
            a + a * a2 * (-1.6666654611e-1f + a2 * (8.3321608736e-3f + a2 * -1.9515295891e-4f));
        const float c = 1.0f - 0.5f * a2 +
                        a2 * a2 *
                            (4.166664568298827e-2f +
                                a2 * (-1.388731625493765e-3f + a2 * 2.443315711809948e-5f));
        const uint32_t cosine = bits_of(c) ^ (v << 30 & 0x80000000u), sine = bits_of(s);
        const uint32_t exchange = (cosine ^ sine) & (0u - (v & 1u));
        out[i] = radius * float_of(cosine ^ exchange);
        out[COUNTERS + i] = radius * float_of(sine ^ exchange);
    }
}

static void normal_chunk(const uint32_t counter[4], const uint32_t key[2], float *out)
{
    uint32_t words[CHUNK] __attribute__((aligned(64)));
    philox_chunk(counter, key, words);
    box_muller(words, out);
    box_muller(words + CHUNK / 2, out + CHUNK / 2);
}

/* ---- arguments ---- */

/* Return 'f' or 'd' for float32 or float64 of this machine ("f", or "<f" as arrays from files have
   it), else 0. */
static int kind_of(const char *format)
{
    const uint16_t one = 1;
    const char native = *(const unsigned char *)&one ? '<' : '>';
    if (!format)
        return 0;
    format += *format == native;
    return (*format == 'f' || *format == 'd') && !format[1] ? *format : 0;
}

/* Open contiguous float32 ('f') or float64 ('d') numbers, `count` of them (any if it is -1), of any
   shape; return how many, -1 with an error. */
static Py_ssize_t numbers_of(
    PyObject *object, Py_buffer *view, char kind, Py_ssize_t count, int flags, const char *name)
{
    const size_t size = kind == 'f' ? sizeof(float) : sizeof(double);
    if (PyObject_GetBuffer(object, view, flags | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s must be a contiguous%s array", name,
            flags & PyBUF_WRITABLE ? " writable" : "");
        return -1;
    }
    const Py_ssize_t found = view->len / (Py_ssize_t)size;
    if (kind_of(view->format) == kind && (uintptr_t)view->buf % size == 0 &&
        (count < 0 || found == count))
        return found;
    PyErr_Format(PyExc_ValueError, "%s must be %s [%zd], got format %s, %zd bytes", name,
        kind == 'f' ? "float32" : "float64", count, view->format ? view->format : "B", view->len);
    PyBuffer_Release(view);
    return -1;
}

PyDoc_STRVAR(normal_doc, "normal(seed, purpose, generation, member, block, out): fill float32 "
                         "[size] with standard normals.");

static PyObject *normal(PyObject *module, PyObject *args)
{
    unsigned long long seed;
    unsigned int purpose, generation, member, block;
    PyObject *object;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "KIIIIO", &seed, &purpose, &generation, &member, &block, &object))
        return NULL;
    Py_ssize_t left = numbers_of(object, &out, 'f', -1, PyBUF_WRITABLE, "out");
    if (left < 0)
        return NULL;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {purpose << 24, block, member, generation};
    float *numbers = out.buf;
    for (; left >= CHUNK; left -= CHUNK, numbers += CHUNK, counter[0] += COUNTERS)
        normal_chunk(counter, key, numbers);
    if (left > 0) {
        float last[CHUNK];
        normal_chunk(counter, key, last);
        memcpy(numbers, last, (size_t)left * sizeof *last);
    }
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    philox_doc, "philox(c0, c1, c2, c3, k0, k1): return the four words of Philox 4x32-10.");

static PyObject *philox(PyObject *module, PyObject *args)
{
    uint32_t counter[4], key[2], words[CHUNK];
    if (!PyArg_ParseTuple(
            args, "IIIIII", counter, counter + 1, counter + 2, counter + 3, key, key + 1))
        return NULL;
    philox_chunk(counter, key, words);
    return Py_BuildValue(
        "IIII", words[0], words[COUNTERS], words[2 * COUNTERS], words[3 * COUNTERS]);
}

/* ---- Perceptron ---- */

/* kernels.py holds a build to it; 1: without layer_norm, 2: without count_in, 3: without finite,
   4: without Loop and linear, 5: without draws */
enum { INTERFACE = 6 };
enum {
    OUTPUT_LANES = 16
}; /* outputs are padded to whole vectors; the padding is zero and no layer reads it */

typedef struct {
    int inputs, outputs, padded,
        vectors;         /* vectors: 1 the bias, or 3 with what normalises the sums */
    float *bias;         /* [padded] */
    float *gain, *shift; /* [padded] each, if vectors is 3 */
    float *weights;      /* [inputs][padded]: the weights of one input lie together */
} Layer;

typedef struct {
    PyObject_HEAD int layers, tanh_hidden, tanh_output, layer_norm;
    int path;            /* inputs of the last layer that are the observation, after its units */
    float linear, units; /* factors of the observation and of the units there */
    int draws;           /* whether the sums of the last layer are [mean; log std] of a Gaussian */
    int acts;            /* numbers of an action */
    Py_ssize_t d;
    Layer *layer;
    void *memory; /* one allocation; the pointers below and those of the layers lie in it */
    float *low, *high, *centre, *half; /* [action] the task's bounds */
    float *x[2];                       /* [widest] activations in and out of a layer */
    float *seen;                       /* [widest] the last `path` inputs of the last layer */
    int32_t *nonzero;                  /* [widest] inputs that a layer adds up */
} Perceptron;

/* tanh within 7 units in the last place: the rational approximation of Eigen's ptanh. nan stays
   nan. */
static inline float hyperbolic_tangent(float x)
{
    float y = x > 9.0f ? 9.0f : x;
    y = y < -9.0f ? -9.0f : y;
    const float y2 = y * y;
    float p = -2.76076847742355e-16f;
    p = p * y2 + 2.00018790482477e-13f;
    p = p * y2 - 8.60467152213735e-11f;
    p = p * y2 + 5.12229709037114e-08f;
    p = p * y2 + 1.48572235717979e-05f;
    p = p * y2 + 6.37261928875436e-04f;
    p = p * y2 + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * y2 + 1.18534705686654e-04f;
    q = q * y2 + 2.26843463243900e-03f;
    q = q * y2 + 4.89352518554385e-03f;
    float t = y * p / q;
    t = t > 1.0f ? 1.0f : t;
    return t < -1.0f ? -1.0f : t;
}

/* out[o] = bias[o] + sum over i, in order, of x[i] * weights[i][o], where x[i] is not zero. Eight
   inputs share one pass over the outputs; each output still adds its terms one by one, so the bits
   are those of the plain loop. */
CLONES static void affine(
    const Layer *layer, const float *restrict x, float *restrict out, int32_t *restrict nonzero)
{
    const int inputs = layer->inputs, padded = layer->padded / OUTPUT_LANES * OUTPUT_LANES;
    const float *weights = __builtin_assume_aligned(layer->weights, 64);
    out = __builtin_assume_aligned(out, 64);
    int n = 0, k = 0;
    for (int i = 0; i < inputs; i++) {
        nonzero[n] = i;
        n += x[i] != 0.0f; /* true for nan */
    }
    memcpy(out, layer->bias, (size_t)padded * sizeof *out);
#define ROW(j)                                                                                     \
    const float x##j = x[nonzero[k + j]];                                                          \
    const float *restrict w##j =                                                                   \
        __builtin_assume_aligned(weights + (size_t)nonzero[k + j] * padded, 64)
    for (; k + 8 <= n; k += 8) {
        ROW(0);
        ROW(1);
        ROW(2);
        ROW(3);
        ROW(4);
        ROW(5);
        ROW(6);
        ROW(7);
        for (int o = 0; o < padded; o++) {
            float s = out[o];
            s += x0 * w0[o];
            s += x1 * w1[o];
            s += x2 * w2[o];
            s += x3 * w3[o];
            s += x4 * w4[o];
            s += x5 * w5[o];
            s += x6 * w6[o];
            s += x7 * w7[o];
            out[o] = s;
        }
    }
    for (; k + 2 <= n; k += 2) {
        ROW(0);
        ROW(1);
        for (int o = 0; o < padded; o++) {
            float s = out[o];
            s += x0 * w0[o];
            s += x1 * w1[o];
            out[o] = s;
        }
    }
    for (; k < n; k++) {
        ROW(0);
        for (int o = 0; o < padded; o++)
            out[o] += x0 * w0[o];
    }
#undef ROW
}

/* The sum of sixteen parts, in their order. */
static inline float sum_of(const float lanes[OUTPUT_LANES])
{
    float sum = lanes[0];
    for (int l = 1; l < OUTPUT_LANES; l++)
        sum += lanes[l];
    return sum;
}

/* x = (x - mean) / sqrt(variance + 1e-5) * gain + shift over the outputs: torch.nn.LayerNorm. Sums
   run in sixteen parts, of every sixteenth output in order, so that vectors of any width make the
   same bits. */
CLONES static void normalise(const Layer *layer, float *restrict x)
{
    const int outputs = layer->outputs, padded = layer->padded / OUTPUT_LANES * OUTPUT_LANES;
    const float *gain = __builtin_assume_aligned(layer->gain, 64),
                *shift = __builtin_assume_aligned(layer->shift, 64);
    float lanes[OUTPUT_LANES] = {0};
    x = __builtin_assume_aligned(x, 64);
    for (int o = 0; o < padded; o += OUTPUT_LANES)
        for (int l = 0; l < OUTPUT_LANES; l++)
            lanes[l] += x[o + l]; /* the padding is zero */
    const float mean = sum_of(lanes) / (float)outputs;
    for (int o = 0; o < padded; o++)
        x[o] -= mean;
    for (int o = outputs; o < padded; o++)
        x[o] = 0.0f;
    memset(lanes, 0, sizeof lanes);
    for (int o = 0; o < padded; o += OUTPUT_LANES)
        for (int l = 0; l < OUTPUT_LANES; l++)
            lanes[l] += x[o + l] * x[o + l];
    const float scale = 1.0f / sqrtf(sum_of(lanes) / (float)outputs + 1e-5f);
    for (int o = 0; o < padded; o++)
        x[o] = x[o] * scale * gain[o] + shift[o];
}

CLONES static void tanh_in_place(float *restrict x, int padded)
{
    for (int o = 0; o < padded / OUTPUT_LANES * OUTPUT_LANES; o++)
        x[o] = hyperbolic_tangent(x[o]);
}

CLONES static void relu_in_place(float *restrict x, int padded)
{
    for (int o = 0; o < padded / OUTPUT_LANES * OUTPUT_LANES; o++)
        x[o] = x[o] < 0.0f ? 0.0f : x[o]; /* nan stays nan */
}

/* Copy a matrix [outputs][inputs] to [inputs][padded], in squares that stay in the cache. */
static void transpose(
    const float *restrict from, float *restrict to, size_t outputs, size_t inputs, size_t padded)
{
    enum { SIDE = 16 };
    for (size_t o0 = 0; o0 < outputs; o0 += SIDE)
        for (size_t i0 = 0; i0 < inputs; i0 += SIDE) {
            const size_t o1 = o0 + SIDE < outputs ? o0 + SIDE : outputs,
                         i1 = i0 + SIDE < inputs ? i0 + SIDE : inputs;
            if (o1 - o0 == SIDE && i1 - i0 == SIDE)
                for (size_t i = i0; i < i1; i += 4)
                    for (size_t o = o0; o < o1; o += 4)
                        transpose_four(from + o * inputs + i, inputs, to + i * padded + o, padded);
            else
                for (size_t i = i0; i < i1; i++)
                    for (size_t o = o0; o < o1; o++)
                        to[i * padded + o] = from[o * inputs + i];
        }
}

/* Standardise x[0] if mean and std are given, and keep it for the linear path. */
static void standardise(Perceptron *self, const float *mean, const float *std)
{
    float *x = self->x[0];
    if (mean)
        for (int i = 0; i < self->layer[0].inputs; i++)
            x[i] = clipped((x[i] - mean[i]) / std[i], -5.0f, 5.0f);
    for (int i = 0; i < self->path; i++)
        self->seen[i] = self->linear * x[i];
}

/* Read the observation (float32 or float64, any stride), standardised if mean and std are given,
   into x[0]. */
static int observe(Perceptron *self, PyObject *object, const float *mean, const float *std)
{
    Py_buffer view;
    float *x = self->x[0];
    const int size = self->layer[0].inputs;
    if (PyObject_GetBuffer(object, &view, PyBUF_FORMAT | PyBUF_STRIDES) < 0)
        return -1;
    const int kind = kind_of(view.format);
    if (view.ndim != 1 || view.shape[0] != size || !kind) {
        PyErr_Format(PyExc_ValueError,
            "the observation must be float32 or float64 [%d], got format %s, %d dimensions, %zd "
            "bytes",
            size, view.format ? view.format : "B", view.ndim, view.len);
        PyBuffer_Release(&view);
        return -1;
    }
    const char *from = view.buf;
    if (kind == 'f' && view.strides[0] == sizeof(float))
        memcpy(x, from, (size_t)size * sizeof *x);
    else
        for (int i = 0; i < size; i++, from += view.strides[0])
            x[i] = kind == 'f' ? *(const float *)from : (float)*(const double *)from;
    standardise(self, mean, std);
    PyBuffer_Release(&view);
    return 0;
}

/* Run the layers from x[0]; return the last one's output, in [-1, 1] unless actions are drawn. */
static float *forward(Perceptron *self)
{
    float *x = self->x[0], *y = self->x[1];
    for (int l = 0; l < self->layers; l++) {
        const Layer *layer = self->layer + l;
        if (l == self->layers - 1 && self->path) {
            const int units = layer->inputs - self->path;
            for (int i = 0; i < units; i++)
                x[i] *= self->units;
            memcpy(x + units, self->seen, (size_t)self->path * sizeof *x);
        }
        affine(layer, x, y, self->nonzero);
        if (l == self->layers - 1)
            break;
        if (layer->vectors == 3)
            normalise(layer, y);
        (self->tanh_hidden ? tanh_in_place : relu_in_place)(y, layer->padded);
        float *other = x;
        x = y;
        y = other;
    }
    const Layer *last = self->layer + self->layers - 1;
    if (self->draws)
        return y;
    if (self->tanh_output)
        tanh_in_place(y, last->padded);
    else
        for (int o = 0; o < last->outputs; o++)
            y[o] = clipped(y[o], -1.0f, 1.0f);
    return y;
}

/* Write the action for what x[0] holds, in the bounds if `scale`. One that is drawn takes the place
   of the standard normals that it is drawn by. */
static void decide(Perceptron *self, int scale, float *action)
{
    float *y = forward(self);
    if (self->draws)
        for (int o = 0; o < self->acts; o++) {
            const float std = exponential(clipped(y[self->acts + o], -20.0f, 2.0f));
            y[o] = hyperbolic_tangent(y[o] + std * action[o]);
        }
    for (int o = 0; o < self->acts; o++) {
        const float in_range = self->centre[o] + self->half[o] * y[o]; /* but for rounding */
        action[o] = scale ? clipped(in_range, self->low[o], self->high[o]) : y[o];
    }
}

PyDoc_STRVAR(act_doc, "act(observation, out, scale, mean, std): write the action [action] to out, "
                      "in [-1, 1] or in the bounds.\n\n"
                      "mean and std are float32 [observation] or None. With draws out has the "
                      "standard normals of the action.");

static PyObject *act(Perceptron *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 5) {
        PyErr_SetString(PyExc_TypeError, "act(observation, out, scale, mean, std)");
        return NULL;
    }
    const int size = self->layer[0].inputs, scale = PyObject_IsTrue(args[2]);
    Py_buffer out, mean = {0}, std = {0};
    PyObject *result = NULL;
    if (scale < 0)
        return NULL;
    if (numbers_of(args[1], &out, 'f', self->acts, PyBUF_WRITABLE, "out") < 0)
        return NULL;
    if (args[3] != Py_None &&
        (numbers_of(args[3], &mean, 'f', size, 0, "mean") < 0 ||
            numbers_of(args[4], &std, 'f', size, 0, "std") < 0))
        goto end;
    if (observe(self, args[0], mean.buf, std.buf) < 0)
        goto end;
    decide(self, scale, out.buf);
    result = Py_NewRef(Py_None);
end:
    PyBuffer_Release(&out);
    PyBuffer_Release(&mean);
    PyBuffer_Release(&std);
    return result;
}

PyDoc_STRVAR(load_doc, "load(theta): take over the layers of theta, float32 [d].");

static PyObject *load(Perceptron *self, PyObject *object)
{
    Py_buffer theta;
    if (numbers_of(object, &theta, 'f', self->d, 0, "theta") < 0)
        return NULL;
    const float *from = theta.buf;
    for (int l = 0; l < self->layers; l++) {
        const Layer *layer = self->layer + l;
        transpose(from, layer->weights, (size_t)layer->outputs, (size_t)layer->inputs,
            (size_t)layer->padded);
        from += (size_t)layer->outputs * layer->inputs;
        float *const vectors[] = {layer->bias, layer->gain, layer->shift};
        for (int v = 0; v < layer->vectors; v++, from += layer->outputs)
            memcpy(vectors[v], from, (size_t)layer->outputs * sizeof *from);
    }
    PyBuffer_Release(&theta);
    Py_RETURN_NONE;
}

static int padding(int n)
{
    return (n + OUTPUT_LANES - 1) / OUTPUT_LANES * OUTPUT_LANES;
}

/* Lay the arrays out in one zeroed allocation, each aligned for whole vectors. */
static int allocate(Perceptron *self)
{
    size_t widest = 0, floats = 0;
    for (int l = 0; l < self->layers; l++) {
        const size_t padded = (size_t)self->layer[l].padded,
                     inputs = (size_t)padding(self->layer[l].inputs);
        floats += padded * (size_t)(self->layer[l].inputs + self->layer[l].vectors);
        widest = padded > widest ? padded : widest;
        widest = inputs > widest ? inputs : widest;
    }
    self->memory = PyMem_Calloc(floats + 8 * widest + OUTPUT_LANES, sizeof(float));
    if (!self->memory) {
        PyErr_NoMemory();
        return -1;
    }
    float *next = (float *)(((uintptr_t)self->memory + 63) & ~(uintptr_t)63);
    for (int l = 0; l < self->layers; l++) {
        Layer *layer = self->layer + l;
        layer->bias = next;
        layer->gain = next + layer->padded;
        layer->shift = next + 2 * layer->padded;
        layer->weights = next + (size_t)layer->padded * (size_t)layer->vectors;
        next = layer->weights + (size_t)layer->padded * (size_t)layer->inputs;
    }
    float **parts[] = {
        &self->x[0], &self->x[1], &self->low, &self->high, &self->centre, &self->half, &self->seen};
    for (int p = 0; p < 7; p++, next += widest)
        *parts[p] = next;
    self->nonzero = (int32_t *)next;
    return 0;
}

/* Read the layers' sizes from the tuple. */
static int measure(Perceptron *self, PyObject *sizes)
{
    self->layers = (int)PyTuple_GET_SIZE(sizes) - 1;
    if (self->layers < 1) {
        PyErr_SetString(PyExc_ValueError, "sizes must be (observation, hidden ..., action)");
        return -1;
    }
    self->layer = PyMem_Calloc((size_t)self->layers, sizeof *self->layer);
    if (!self->layer) {
        PyErr_NoMemory();
        return -1;
    }
    for (int l = 0; l <= self->layers; l++) {
        const long size = PyLong_AsLong(PyTuple_GET_ITEM(sizes, l));
        if (size < 1 || size > 1 << 24) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "a layer has 1 to 2**24 units, got %ld", size);
            return -1;
        }
        if (l < self->layers)
            self->layer[l].inputs = (int)size;
        if (l > 0)
            self->layer[l - 1].outputs = (int)size, self->layer[l - 1].padded = padding((int)size);
    }
    self->path = self->linear != 0.0f && self->layers > 1 ? self->layer[0].inputs : 0;
    self->layer[self->layers - 1].inputs += self->path;
    for (int l = 0; l < self->layers; l++) {
        self->layer[l].vectors = self->layer_norm && l < self->layers - 1 ? 3 : 1;
        self->d +=
            (Py_ssize_t)self->layer[l].outputs * (self->layer[l].inputs + self->layer[l].vectors);
    }
    self->acts = self->layer[self->layers - 1].outputs / (1 + self->draws);
    return 0;
}

/* Return 1 if `name` is `yes`, 0 if it is `no`, -1 with an error otherwise. */
static int choice(const char *what, const char *name, const char *yes, const char *no)
{
    if (!strcmp(name, yes) || !strcmp(name, no))
        return !strcmp(name, yes);
    PyErr_Format(PyExc_ValueError, "%s must be %s or %s, got %s", what, yes, no, name);
    return -1;
}

static void perceptron_dealloc(Perceptron *self)
{
    PyMem_Free(self->memory);
    PyMem_Free(self->layer);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *perceptron_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *sizes, *low_object, *high_object;
    const char *activation, *output;
    Py_buffer low, high;
    int layer_norm = 0, draws = 0;
    double linear = 0.0;
    if (!PyArg_ParseTuple(args, "O!ssOO|pdp", &PyTuple_Type, &sizes, &activation, &output,
            &low_object, &high_object, &layer_norm, &linear, &draws))
        return NULL;
    Perceptron *self = (Perceptron *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->layer_norm = layer_norm;
    self->draws = draws;
    self->linear = (float)linear;
    self->units = linear != 0.0 ? (float)(1.0 / linear) : 1.0f;
    self->tanh_hidden = choice("activation", activation, "tanh", "relu");
    self->tanh_output = self->tanh_hidden < 0 ? -1 : choice("output", output, "tanh", "clip");
    if (self->tanh_output < 0 || measure(self, sizes) < 0 || allocate(self) < 0)
        goto fail;
    if (numbers_of(low_object, &low, 'f', self->acts, 0, "low") < 0)
        goto fail;
    if (numbers_of(high_object, &high, 'f', self->acts, 0, "high") < 0) {
        PyBuffer_Release(&low);
        goto fail;
    }
    for (int o = 0; o < self->acts; o++) {
        const float bottom = ((float *)low.buf)[o], top = ((float *)high.buf)[o];
        self->low[o] = bottom;
        self->high[o] = top;
        self->centre[o] = (top + bottom) / 2.0f;
        self->half[o] = (top - bottom) / 2.0f;
    }
    PyBuffer_Release(&low);
    PyBuffer_Release(&high);
    return (PyObject *)self;
fail:
    Py_DECREF(self);
    return NULL;
}

static PyMethodDef perceptron_methods[] = {
    {"load", (PyCFunction)load, METH_O, load_doc},
    {"act", (PyCFunction)(void (*)(void))act, METH_FASTCALL, act_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject perceptron_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "esac_mpi.operators._kernels.Perceptron",
    .tp_doc = PyDoc_STR("Perceptron(sizes, activation, output, low, high, layer_norm=False, "
                        "linear=0.0, draws=False): a policy's forward pass."),
    .tp_basicsize = sizeof(Perceptron),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = perceptron_new,
    .tp_dealloc = (destructor)perceptron_dealloc,
    .tp_methods = perceptron_methods,
};

PyDoc_STRVAR(count_in_doc, "count_in(sums, observation): add float32 [o] to float64 [3, o]: count, "
                           "sum and sum of squares.");

static PyObject *count_in(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    Py_buffer sums, observation;
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "count_in(sums, observation)");
        return NULL;
    }
    const Py_ssize_t size = numbers_of(args[1], &observation, 'f', -1, 0, "observation");
    if (size < 0)
        return NULL;
    if (numbers_of(args[0], &sums, 'd', 3 * size, PyBUF_WRITABLE, "sums") < 0) {
        PyBuffer_Release(&observation);
        return NULL;
    }
    const float *o = observation.buf;
    double *const count = sums.buf, *const total = count + size, *const squares = total + size;
    for (Py_ssize_t i = 0; i < size; i++) {
        const double x = o[i];
        count[i] += 1.0;
        total[i] += x;
        squares[i] += x * x; /* exact in double, so that fused or not is one */
    }
    PyBuffer_Release(&sums);
    PyBuffer_Release(&observation);
    Py_RETURN_NONE;
}

static int are_finite(const float *x, Py_ssize_t n)
{
    int found = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        found |= (bits_of(x[i]) & 0x7F800000u) == 0x7F800000u;
    return !found;
}

PyDoc_STRVAR(finite_doc, "finite(numbers): return whether all of float32 [n] are finite.");

static PyObject *all_finite(PyObject *module, PyObject *object)
{
    Py_buffer numbers;
    const Py_ssize_t count = numbers_of(object, &numbers, 'f', -1, 0, "numbers");
    if (count < 0)
        return NULL;
    const int are = are_finite(numbers.buf, count);
    PyBuffer_Release(&numbers);
    return PyBool_FromLong(are);
}

/* ---- Policy and physics in turn, with the simulator's numbers in place ---- */

typedef struct {
    PyObject_HEAD PyObject *begin,
        *advance;          /* tuples of calls, each a tuple of a function and its arguments */
    PyObject *views;       /* own the memory of `from` */
    Py_buffer ctrl;        /* float64 [acts] */
    Py_buffer ranges;      /* float64 [2, numbers] clip what is observed; the rest ends a run */
    Py_buffer alarms;      /* int32 [any], end a run where one is not 0 */
    Py_ssize_t acts, sees; /* actions and observed numbers */
    Py_ssize_t numbers;    /* the observed ones and the traced ones after them */
    const double **from;   /* [numbers] where each lies */
    Py_ssize_t steps;      /* that the last run began */
    char within;           /* whether what it traced last lay in its ranges */
} Loop;

/* Note where each number of a float64 array lies; return how many, -1 with an error. */
static Py_ssize_t locate(PyObject *array, const double **to, Py_ssize_t room)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_FORMAT | PyBUF_STRIDES) < 0)
        return -1;
    Py_ssize_t n = view.len / (Py_ssize_t)sizeof(double);
    if (kind_of(view.format) != 'd' || n > room) {
        PyErr_Format(PyExc_ValueError, "views must be float64 and fit the ranges; got %zd more", n);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *at = view.buf;
        for (Py_ssize_t d = view.ndim - 1, rest = i; d >= 0; rest /= view.shape[d--])
            at += rest % view.shape[d] * view.strides[d];
        to[i] = (const double *)at;
    }
    PyBuffer_Release(&view); /* the memory stays while the array does */
    return n;
}

static void loop_dealloc(Loop *self)
{
    Py_XDECREF(self->begin);
    Py_XDECREF(self->advance);
    Py_XDECREF(self->views);
    PyBuffer_Release(&self->ctrl);
    PyBuffer_Release(&self->ranges);
    PyBuffer_Release(&self->alarms);
    PyMem_Free(self->from);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *ctrl, *begin, *advance, *views, *ranges, *alarms;
    Py_ssize_t sees, found = 0;
    if (!PyArg_ParseTuple(args, "OO!O!nO!OO", &ctrl, &PyTuple_Type, &begin, &PyTuple_Type, &advance,
            &sees, &PyTuple_Type, &views, &ranges, &alarms))
        return NULL;
    Loop *self = (Loop *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->begin = Py_NewRef(begin);
    self->advance = Py_NewRef(advance);
    self->views = Py_NewRef(views);
    self->sees = sees;
    self->acts = numbers_of(ctrl, &self->ctrl, 'd', -1, PyBUF_WRITABLE, "ctrl");
    if (self->acts < 0 || numbers_of(ranges, &self->ranges, 'd', -1, 0, "ranges") < 0 ||
        PyObject_GetBuffer(alarms, &self->alarms, PyBUF_STRIDES) < 0)
        goto fail;
    const Py_ssize_t numbers = self->numbers = self->ranges.len / (2 * (Py_ssize_t)sizeof(double));
    self->from = PyMem_Calloc((size_t)numbers + 1, sizeof *self->from);
    if (!self->from) {
        PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = 0, n; i < PyTuple_GET_SIZE(views); i++, found += n)
        if ((n = locate(PyTuple_GET_ITEM(views, i), self->from + found, numbers - found)) < 0)
            goto fail;
    const int flat = self->alarms.ndim == 1 && self->alarms.itemsize == sizeof(int32_t);
    if (flat && found == numbers && sees >= 0 && sees <= numbers)
        return (PyObject *)self;
    PyErr_Format(PyExc_ValueError, "%s: views hold %zd numbers, %zd observed, ranges are of %zd",
        flat ? "alarms fit" : "alarms must be int32 [n]", found, sees, numbers);
fail:
    Py_DECREF(self);
    return NULL;
}

static int called(PyObject *calls)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
        PyObject *call = PyTuple_GET_ITEM(calls, i);
        PyObject *const *parts = ((PyTupleObject *)call)->ob_item;
        const size_t arguments = (size_t)PyTuple_GET_SIZE(call) - 1;
        PyObject *answer = PyObject_Vectorcall(parts[0], parts + 1, arguments, NULL);
        if (!answer)
            return -1;
        Py_DECREF(answer);
    }
    return 0;
}

/* Read what is observed and what is traced; return whether those are finite, these within ranges,
   and no alarm is given. */
static int read_numbers(Loop *self, float *observed, double *traced)
{
    const Py_ssize_t sees = self->sees;
    const double *const low = self->ranges.buf, *const high = low + self->numbers;
    for (Py_ssize_t i = 0; observed && i < sees; i++) {
        const double x = *self->from[i], y = x < low[i] ? low[i] : x;
        observed[i] = (float)(y > high[i] ? high[i] : y); /* nan stays nan */
    }
    self->within = 1;
    for (Py_ssize_t i = sees; i < self->numbers; i++) {
        const double x = traced[i - sees] = *self->from[i];
        self->within &= low[i] < x && x < high[i];
    }
    int alarmed = 0;
    for (Py_ssize_t i = 0; i < self->alarms.shape[0]; i++)
        alarmed |= *(const int32_t *)((const char *)self->alarms.buf + i * self->alarms.strides[0]);
    return self->within && !alarmed && (!observed || are_finite(observed, sees));
}

PyDoc_STRVAR(run_doc,
    "run(network, mean, std, observations, traces, actions): take n steps, or fewer.\n\n"
    "observations float32 [n + 1, seen], traces float64 [n + 1, traced], actions float32\n"
    "[n, action]: what the steps begin with in row 0; of no steps, the state as it is.\n"
    "network: a Perceptron, which fills in the actions, with draws by the standard normals that\n"
    "are there; None: they are given.");

static PyObject *run(Loop *self, PyObject *const *args, Py_ssize_t n)
{
    enum { MEAN, STD, OBSERVATIONS, TRACES, ACTIONS, VIEWS };
    Py_buffer view[VIEWS] = {{0}};
    PyObject *result = NULL;
    if (n != 6 || (args[0] != Py_None && !Py_IS_TYPE(args[0], &perceptron_type))) {
        PyErr_SetString(PyExc_TypeError, "run(network, mean, std, observations, traces, actions)");
        return NULL;
    }
    Perceptron *network = args[0] == Py_None ? NULL : (Perceptron *)args[0];
    const Py_ssize_t sees = self->sees, traces = self->numbers - sees, acts = self->acts;
    const int given = network ? PyBUF_WRITABLE : 0;
    self->steps = 0;
    if (network &&
        (network->layer[0].inputs != sees || network->acts != acts)) {
        PyErr_Format(PyExc_ValueError, "the network must have %zd inputs, %zd outputs", sees, acts);
        return NULL;
    }
    const Py_ssize_t all = numbers_of(args[5], &view[ACTIONS], 'f', -1, given, "actions");
    const Py_ssize_t steps = acts ? all / acts : 0, rows = steps + 1;
    Py_buffer *const seen = &view[OBSERVATIONS], *const kept = &view[TRACES];
    if (all < 0 ||
        numbers_of(args[3], seen, 'f', rows * sees, PyBUF_WRITABLE, "observations") < 0 ||
        numbers_of(args[4], kept, 'd', rows * traces, PyBUF_WRITABLE, "traces") < 0)
        goto end;
    if (args[1] != Py_None && (numbers_of(args[1], &view[MEAN], 'f', sees, 0, "mean") < 0 ||
                                  numbers_of(args[2], &view[STD], 'f', sees, 0, "std") < 0))
        goto end;
    float *observed = seen->buf, *action = view[ACTIONS].buf;
    double *traced = kept->buf;
    if (called(self->begin) < 0)
        goto end;
    read_numbers(self, steps ? NULL : observed, traced);
    for (int going = 1; going && self->steps < steps; action += acts) {
        if (network) {
            memcpy(network->x[0], observed, (size_t)sees * sizeof *observed);
            standardise(network, view[MEAN].buf, view[STD].buf);
            decide(network, 1, action);
        }
        for (Py_ssize_t i = 0; i < acts; i++)
            ((double *)self->ctrl.buf)[i] = action[i];
        self->steps++;
        if (PyErr_CheckSignals() < 0 || called(self->advance) < 0)
            goto end;
        going = read_numbers(self, observed += sees, traced += traces);
    }
    result = Py_NewRef(Py_None);
end:
    for (int v = 0; v < VIEWS; v++)
        PyBuffer_Release(&view[v]);
    return result;
}

static PyMethodDef loop_methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, run_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef loop_members[] = {
    {"steps", T_PYSSIZET, offsetof(Loop, steps), READONLY, NULL},
    {"within", T_BOOL, offsetof(Loop, within), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject loop_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "esac_mpi.operators._kernels.Loop",
    .tp_doc = PyDoc_STR("Loop(ctrl, begin, advance, sees, views, ranges, alarms)"),
    .tp_basicsize = sizeof(Loop),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = loop_new,
    .tp_dealloc = (destructor)loop_dealloc,
    .tp_methods = loop_methods,
    .tp_members = loop_members,
};

static PyMethodDef functions[] = {
    {"count_in", (PyCFunction)(void (*)(void))count_in, METH_FASTCALL, count_in_doc},
    {"finite", all_finite, METH_O, finite_doc},
    {"normal", normal, METH_VARARGS, normal_doc},
    {"philox", philox, METH_VARARGS, philox_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernels",
    .m_doc = "Compiled parts of esac_mpi.operators.kernels.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    choose_philox();
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (PyModule_AddType(module, &perceptron_type) < 0 ||
        PyModule_AddType(module, &loop_type) < 0 ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
