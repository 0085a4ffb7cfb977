/* What both extensions have: functions of one number, a square of four transposed. */
#ifndef ESAC_MPI_COMMON_H
#define ESAC_MPI_COMMON_H

#include <stdint.h>
#include <string.h>
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define X86 1
#endif

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float clipped(float x, float low, float high)
{
    const float y = x < low ? low : x;
    return y > high ? high : y; /* nan stays nan */
}

/* Natural logarithm of a normal float32; polynomial of Cephes logf. */
static inline float logarithm(float u)
{
    /* relative to sqrt(1/2): the mantissa ends in [.707, 1.414) */
    const int32_t t = (int32_t)(bits_of(u) - 0x3F3504F3u);
    const float e = (float)(t >> 23);
    const float f = float_of((uint32_t)(t & 0x007FFFFF) + 0x3F3504F3u) - 1.0f;
    const float f2 = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return e * 0.693147182f + (f + (p * f - 0.5f) * f2);
}

/* e^x of -87 to 88, in 2 units of the last place; polynomial of Cephes expf. nan stays nan. */
static inline float exponential(float x)
{
    const float y = clipped(x, -87.0f, 88.0f);
    const float shifted = y * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: its last bits are n */
    const float n = shifted - 12582912.0f;
    const float r = y - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * (r * r) + r + 1.0f) * float_of((bits_of(shifted) + 127u - 0x4B400000u) << 23);
}

/* Transpose four rows and columns. */
static inline void transpose_four(const float *from, size_t width, float *to, size_t to_width)
{
#ifdef X86
    __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + width);
    __m128 r2 = _mm_loadu_ps(from + 2 * width), r3 = _mm_loadu_ps(from + 3 * width);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(to, r0);
    _mm_storeu_ps(to + to_width, r1);
    _mm_storeu_ps(to + 2 * to_width, r2);
    _mm_storeu_ps(to + 3 * to_width, r3);
#else
    for (size_t i = 0; i < 4; i++)
        for (size_t o = 0; o < 4; o++)
            to[i * to_width + o] = from[o * width + i];
#endif
}

#endif
