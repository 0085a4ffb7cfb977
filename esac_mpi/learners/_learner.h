/* One update of SAC for one kind of vectors: _learner.c includes this once for each, with these
   defined.

   NAME(f)               the name of f for this kind
   VECTOR, LANES         a vector of float32, and how many numbers it has: a part of PANEL
   LOAD, STORE, SET      of memory, to memory, of one number in all lanes
   FMA, MAX, OPEN        a * b + c; the larger one; OPEN(x, y) is x where y > 0, else 0
   ROWS, PANELS          a tile of a product: its rows, its panels of columns; its sums fill the
                         registers
   FEW                   rows of a lower tile for the last ones, lest most of them are for nothing;
                         with more than one panel it is ROWS

   Each number of a product is one chain of fused multiply-adds in the order of the inner index,
   whatever the tiles are, and no other sum depends on the vectors: so every kind makes the same
   bits. */

enum { NAME(PER) = PANEL / LANES };

/* Make `tall` rows of a product in so many panels, from row a and panels b, at c. Only `rows` are
   there: the others repeat the last one. */
static inline __attribute__((always_inline)) void NAME(tile)(const Product *p, const float *a,
                                                             int tall, int rows, const float *b,
                                                             int panels, const float *bias,
                                                             const float *open, float *c,
                                                             size_t width)
{
    const size_t inner = (size_t)p->inner, left_column = p->left_column, open_width = p->width;
    const int relu = p->relu;
    const float *row[ROWS];
    VECTOR sum[ROWS][PANELS * NAME(PER)];
    for (int i = 0; i < tall; i++) {
        row[i] = a + (size_t)(i < rows ? i : rows - 1) * p->left_row;
        for (int v = 0; v < panels * NAME(PER); v++)
            sum[i][v] = bias ? LOAD(bias + v * LANES) : SET(0.0f);
    }
    for (size_t k = 0, at = 0; k < inner; k++, at += left_column) {
        VECTOR right[PANELS * NAME(PER)];
        for (int v = 0; v < panels * NAME(PER); v++)
            right[v] = LOAD(b + (size_t)(v / NAME(PER)) * inner * PANEL + k * PANEL
                            + v % NAME(PER) * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < tall; i++) {
            const VECTOR left = SET(row[i][at]);
            for (int v = 0; v < panels * NAME(PER); v++)
                sum[i][v] = FMA(left, right[v], sum[i][v]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < tall; i++)
        for (int v = 0; v < panels * NAME(PER); v++) {
            VECTOR x = sum[i][v];
            if (relu)
                x = MAX(SET(0.0f), x);
            if (open)
                x = OPEN(x, LOAD(open + (size_t)(i < rows ? i : rows - 1) * open_width
                                 + (size_t)(v * LANES)));
            STORE(c + (size_t)i * width + (size_t)(v * LANES), x);
        }
}

/* Make a product of so many rows and columns. */
static void NAME(multiply)(const Product *p, int rows, int columns)
{
    enum { WIDE = PANELS * PANEL, BLOCK = 64 }; /* BLOCK rows stay in the cache */
    float edge[ROWS * WIDE];
    float bias[WIDE] = {0};
    for (int first = 0; first < rows; first += BLOCK) {
        const int last = rows - first < BLOCK ? rows : first + BLOCK;
        for (int j = 0; j < columns; j += WIDE) {
            const float *b = p->right + (size_t)p->inner * (size_t)j;
            const int wide = columns - j < WIDE ? columns - j : WIDE;
            const float *given = p->bias ? bias : NULL;
            if (p->bias)
                memcpy(bias, p->bias + j, (size_t)wide * sizeof *bias);
            for (int i = first; i < last; i += ROWS) {
                const size_t at = (size_t)i * p->width + (size_t)j;
                const int high = last - i < ROWS ? last - i : ROWS;
                const int tall = high > FEW ? ROWS : FEW;
                const int fits = high == tall && (wide == WIDE || p->width % WIDE == 0);
                const size_t width = fits ? p->width : WIDE;
                const float *a = p->left + (size_t)i * p->left_row;
                const float *open = p->open ? p->open + at : NULL;
                float *c = fits ? p->out + at : edge;
                if (PANELS > 1 && wide <= PANEL)
                    NAME(tile)(p, a, ROWS, high, b, 1, given, open, c, width);
                else if (FEW == ROWS || high > FEW)
                    NAME(tile)(p, a, ROWS, high, b, PANELS, given, open, c, width);
                else
                    NAME(tile)(p, a, FEW, high, b, PANELS, given, open, c, width);
                for (int r = 0; r < high && !fits; r++)
                    memcpy(p->out + at + (size_t)r * p->width, edge + r * WIDE,
                           (size_t)wide * sizeof *c);
            }
        }
    }
}

/* Put b [rows][columns], whose rows are `width` apart, into panels, each [rows][16]; what is beyond
   is zero. */
static void NAME(pack)(const float *b, int rows, int columns, size_t width, float *panels)
{
    enum { TOGETHER = 16 }; /* rows side by side, so that both reads and writes run on */
    for (int first = 0; first < rows; first += TOGETHER) {
        const int count = rows - first < TOGETHER ? rows - first : TOGETHER;
        for (int j = 0; j < panelled(columns); j += PANEL) {
            const float *from = b + (size_t)first * width + j;
            float *to = panels + ((size_t)j / PANEL * (size_t)rows + (size_t)first) * PANEL;
            for (int k = 0; k < count; k++, from += width, to += PANEL)
                if (columns - j >= PANEL)
                    for (int v = 0; v < NAME(PER); v++)
                        STORE(to + v * LANES, LOAD(from + v * LANES));
                else
                    for (int l = 0; l < PANEL; l++)
                        to[l] = j + l < columns ? from[l] : 0.0f;
        }
    }
}

/* Put the transpose of b [columns][rows] into such panels. */
static void NAME(pack_transposed)(const float *b, int rows, int columns, float *panels)
{
    for (int j = 0; j < panelled(columns); j += PANEL, panels += (size_t)rows * PANEL) {
        int k = 0;
        for (; k + 4 <= rows && columns - j >= PANEL; k += 4)
            for (int l = 0; l < PANEL; l += 4)
                transpose_four(b + (size_t)(j + l) * (size_t)rows + k, (size_t)rows,
                               panels + (size_t)k * PANEL + l, PANEL);
        for (; k < rows; k++)
            for (int l = 0; l < PANEL; l++)
                panels[(size_t)k * PANEL + l] =
                    j + l < columns ? b[(size_t)(j + l) * (size_t)rows + k] : 0.0f;
    }
}

/* out[r] = bias + x[r] . w: sums in sixteen parts, of every sixteenth number in order, then in
   halves. */
static void NAME(dots)(const float *x, size_t width, int rows, const float *w, int size, float bias,
                       float *out)
{
    for (int r = 0; r < rows; r++, x += width) {
        VECTOR part[NAME(PER)];
        float lanes[PANEL];
        for (int v = 0; v < NAME(PER); v++)
            part[v] = SET(0.0f);
        int k = 0;
        for (; k + PANEL <= size; k += PANEL)
            for (int v = 0; v < NAME(PER); v++)
                part[v] = FMA(LOAD(x + k + v * LANES), LOAD(w + k + v * LANES), part[v]);
        for (int v = 0; v < NAME(PER); v++)
            STORE(lanes + v * LANES, part[v]);
        for (int l = 0; k + l < size; l++)
            lanes[l] = fmaf(x[k + l], w[k + l], lanes[l]);
        for (int half = PANEL / 2; half; half /= 2)
            for (int l = 0; l < half; l++)
                lanes[l] += lanes[l + half];
        out[r] = lanes[0] + bias;
    }
}

/* Put the last hidden units and the network's input, each times its factor, side by side. */
static void NAME(join)(const Network *net, const float *x, size_t width, int rows, float *units)
{
    const int hidden = net->sizes[net->layers - 1];
    const float share = 1.0f / net->path;
    for (int r = 0; r < rows; r++, x += width, units += padded(inputs(net, net->layers - 1))) {
        for (int j = 0; j < hidden; j++)
            units[j] *= share;
        for (int j = 0; j < net->sizes[0]; j++)
            units[hidden + j] = net->path * x[j];
    }
}

/* Run x [rows][sizes[0]] through a member's layers to `hidden` and y; a single output is [rows],
   more are padded. */
static void NAME(forward)(const Worker *w, const Network *net, int member, const float *x,
                          size_t width, int rows, float *const *hidden, float *y)
{
    const float *const seen = x;
    const size_t apart = width;
    int first;
    const int own = share(w, rows, PANEL, &first);
    for (int l = 0; l < net->layers; l++) {
        const int in = inputs(net, l), out = net->sizes[l + 1], last = l == net->layers - 1;
        const size_t out_width = padded(last ? out : inputs(net, l + 1));
        if (last && net->path > 0.0f) {
            NAME(join)(net, seen + (size_t)first * apart, apart, own,
                       hidden[l - 1] + (size_t)first * width);
            meet(w->update);
        }
        const float *weight = net->values + weight_at(net, l, member);
        const float *bias = net->values + bias_at(net, l, member);
        float *to = last ? y : hidden[l];
        if (last && out == 1) {
            NAME(dots)(x + (size_t)first * width, width, own, weight, in, *bias, to + first);
        } else {
            const Part part = divide(w, rows, out);
            const float *left = x + (size_t)part.row * width;
            float *at = to + (size_t)part.row * out_width + part.column;
            NAME(pack_transposed)(weight + (size_t)part.column * (size_t)in, in, part.columns,
                                  w->panels);
            NAME(multiply)(&(Product){in, !last, left, width, 1, w->panels, bias + part.column,
                                      NULL, at, out_width},
                           part.rows, part.columns);
        }
        meet(w->update);
        x = to;
        width = out_width;
    }
}

/* Take the gradient by the last hidden units from that by these over the path's factor, and lay its
   rows as far apart as those of a layer without a path. */
static void NAME(narrow)(const Network *net, int rows, float *delta)
{
    const int hidden = net->sizes[net->layers - 1];
    const size_t from = padded(inputs(net, net->layers - 1)), to = padded(hidden);
    const float share = 1.0f / net->path;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < hidden; j++)
            delta[(size_t)r * to + (size_t)j] = delta[(size_t)r * from + (size_t)j] * share;
}

/* Return the gradient by the first layer's sums, given `delta` by a member's outputs; leave those
   by parameters in the network's `gradient` if x is given, each in its worker's part. */
static const float *NAME(backward)(const Worker *w, const Network *net, int member, const float *x,
                                   size_t width, int rows, float *const *hidden,
                                   const float *delta)
{
    for (int l = net->layers - 1; l >= 0; l--) {
        const int in = inputs(net, l), out = net->sizes[l + 1];
        const int units = net->sizes[l];
        const int thin = l == net->layers - 1 && out == 1; /* such an output is [rows] */
        const size_t delta_width = thin ? 1 : padded(out);
        if (x) {
            const Part part = divide(w, out, in);
            float *by_weight = net->gradient + weight_at(net, l, member) + part.column,
                  *by_bias = net->gradient + bias_at(net, l, member);
            const float *right = (l ? hidden[l - 1] : x) + part.column;
            NAME(pack)(right, rows, part.columns, l ? padded(in) : width, w->panels);
            const int end = part.row + part.rows;
            for (int c = part.row; c < end; c += PANEL) { /* columns of delta, as rows that lie
                                                             together */
                const int wide = end - c < PANEL ? end - c : PANEL;
                float sums[PANEL] = {0};
                NAME(pack)(delta + c, rows, wide, delta_width, w->left);
                if (!part.column) {
                    for (int r = 0; r < rows; r++)
                        for (int l = 0; l < PANEL; l++)
                            sums[l] += w->left[r * PANEL + l];
                    memcpy(by_bias + c, sums, (size_t)wide * sizeof *sums);
                }
                float *to = by_weight + (size_t)c * (size_t)in;
                NAME(multiply)(&(Product){rows, 0, w->left, 1, PANEL, w->panels, NULL, NULL, to,
                                          (size_t)in},
                               wide, part.columns);
            }
        }
        if (l) {
            const Part part = divide(w, rows, units);
            float *const below = w->update->room[l % 2];
            const size_t at = (size_t)part.row * padded(in) + (size_t)part.column;
            NAME(pack)(net->values + weight_at(net, l, member) + part.column, out, part.columns,
                       (size_t)in, w->panels);
            const float *left = delta + (size_t)part.row * delta_width;
            NAME(multiply)(&(Product){out, 0, left, delta_width, 1, w->panels, NULL,
                                      hidden[l - 1] + at, below + at, padded(in)},
                           part.rows, part.columns);
            meet(w->update);
            if (in > units) {
                if (!w->place)
                    NAME(narrow)(net, rows, below);
                meet(w->update);
            }
            delta = below;
        }
    }
    return delta;
}

/* Adam (Kingma and Ba 2015, in the order of its section 2), of a worker's share; `target`, if any,
   follows (Polyak). */
static void NAME(adam)(const Worker *w, const Network *net, float rate, float small,
                       float *restrict target, float tau)
{
    enum { BLOCK = 2048 };
    int begin;
    const size_t end = (size_t)share(w, (int)length(net), PANEL, &begin) + (size_t)begin;
    for (size_t first = (size_t)begin; first < end; first += BLOCK) {
        const size_t count = end - first < BLOCK ? end - first : BLOCK;
        float *restrict values = net->values + first, *restrict m = net->moment1 + first,
                        *restrict v = net->moment2 + first;
        const float *restrict gradient = net->gradient + first;
        for (size_t i = 0; i < count; i++) {
            const float g = gradient[i];
            m[i] += 0.1f * (g - m[i]);
            v[i] += 0.001f * (g * g - v[i]);
            values[i] += rate * m[i] / (sqrtf(v[i]) + small);
        }
        for (size_t i = 0; target && i < count; i++)
            target[first + i] += tau * (values[i] - target[first + i]);
    }
}

/* Draw tanh-Gaussian actions [rows][a] and their log pi [rows] from [mean; log std] (2018a, Eq.
   21). */
static void NAME(act)(const float *restrict output, size_t width, const float *restrict noise,
                      int rows, int a, float *restrict action, float *restrict deviation,
                      float *restrict terms, float *restrict log_prob)
{
    const float constant = 2.3052327943245735f; /* log(2 pi) / 2 + 2 log 2 */
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < a; j++) {
            terms[r * a + j] = output[(size_t)r * width + (size_t)j];
            deviation[r * a + j] =
                clipped(output[(size_t)r * width + (size_t)(a + j)], -20.0f, 2.0f);
        }
    for (int i = 0; i < rows * a; i++) {
        const float log_std = deviation[i], n = noise[i], d = exponential(log_std) * n;
        const float u = terms[i] + d, size = fabsf(u);
        deviation[i] = d;
        action[i] = hyperbolic_tangent(u);
        /* log(1 - tanh(u)^2) = 2 log 2 - 2 log(2 cosh u): no cancellation where tanh saturates */
        const float log_2_cosh = size + logarithm(1.0f + exponential(-2.0f * size));
        terms[i] = 2.0f * log_2_cosh - log_std - 0.5f * n * n - constant;
    }
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int j = 0; j < a; j++)
            sum += terms[r * a + j];
        log_prob[r] = sum;
    }
}

/* Make `rounds` times CHAINS fused multiply-adds of vectors that stay in registers: the limit of a
   core. */
static double NAME(multiply_adds)(long rounds)
{
    VECTOR sum[CHAINS];
    float found[LANES];
    for (int i = 0; i < CHAINS; i++)
        sum[i] = SET(1e-3f * (float)i);
    for (long k = 0; k < rounds; k++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            sum[i] = FMA(sum[i], SET(0.999f), SET(1e-6f));
    for (int i = 1; i < CHAINS; i++)
        sum[0] = FMA(sum[i], SET(1.0f), sum[0]);
    STORE(found, sum[0]);
    return (double)found[0];
}

/* Make a worker's part of an update. What is a few numbers a row is the first one's. */
static void NAME(update)(const Worker *w)
{
    Update *u = w->update;
    const int leads = !w->place;
    const int a = u->actor.sizes[u->actor.layers] / 2;
    const int o = u->actor.sizes[0];
    const int batch = u->batch;
    const int both = o + a;
    const size_t width = (size_t)(2 * o + a + 2);
    const float *const given = u->rows + (size_t)(u->turn * batch) * width;
    const float *const noise = u->noise + u->turn * 2 * batch * a;
    const size_t pair_width = padded(both);
    const size_t out_width = padded(2 * a);
    float *const pairs = u->pairs; /* of observation and action: at the next observation */
    float *const fresh = pairs + (size_t)batch * pair_width; /* and at this one */
    const float temperature = u->log_temperature.values ? exponential(*u->log_temperature.values)
                                                        : *u->temperature;
    const float gamma = u->gamma, per_row = 1.0f / (float)batch;
    double squares = 0.0, mean_q = 0.0, entropy = 0.0;
    int first, own = share(w, batch, 1, &first);

    for (int b = first; b < first + own; b++) {
        memcpy(pairs + (size_t)b * pair_width, given + (size_t)b * width + both + 2,
               (size_t)o * sizeof(float));
        memcpy(fresh + (size_t)b * pair_width, given + (size_t)b * width,
               (size_t)o * sizeof(float));
    }
    meet(u);
    NAME(forward)(w, &u->actor, 0, pairs, pair_width, 2 * batch, u->hidden[2], u->output);
    own = share(w, 2 * batch, 1, &first);
    const size_t at = (size_t)(first * a);
    NAME(act)(u->output + (size_t)first * out_width, out_width, noise + at, own, a, u->action + at,
              u->deviation + at, u->terms + at, u->log_prob + first);
    for (int b = first; b < first + own; b++)
        memcpy(pairs + (size_t)b * pair_width + o, u->action + b * a, (size_t)a * sizeof(float));
    meet(u);

    /* the critics: 2018b, Eq. 3 and 5 */
    Network target = u->critic;
    target.values = u->target;
    for (int m = 0; m < 2; m++)
        NAME(forward)(w, &target, m, pairs, pair_width, batch, u->hidden[0], u->q[m]);
    for (int b = 0; leads && b < batch; b++) {
        const float *end = given + (size_t)b * width + both; /* reward, terminated */
        const float least = u->q[0][b] < u->q[1][b] ? u->q[0][b] : u->q[1][b];
        u->backup[b] = end[0] + gamma * (1.0f - end[1]) * (least - temperature * u->log_prob[b]);
    }
    for (int m = 0; m < 2; m++) {
        NAME(forward)(w, &u->critic, m, given, width, batch, u->hidden[0], u->q[m]);
        for (int b = 0; leads && b < batch; b++) {
            const float error = u->q[m][b] - u->backup[b];
            squares += (double)error * error;
            u->q[m][b] = error * per_row;
        }
        meet(u);
        NAME(backward)(w, &u->critic, m, given, width, batch, u->hidden[0], u->q[m]);
    }
    meet(u);
    NAME(adam)(w, &u->critic, u->rates[0], u->rates[1], u->target, u->tau);
    meet(u);

    /* the actor: 2018b, Eq. 9 */
    for (int m = 0; m < 2; m++)
        NAME(forward)(w, &u->critic, m, fresh, pair_width, batch, u->hidden[m], u->q[m]);
    for (int b = 0; b < batch; b++) {
        mean_q += (double)(u->q[0][b] < u->q[1][b] ? u->q[0][b] : u->q[1][b]);
        entropy += (double)u->log_prob[batch + b];
    }
    for (int m = 0; m < 2; m++) {
        const int wide = u->critic.sizes[1];
        int rows = 0; /* for which this critic is the lesser one; they move up */
        for (int b = 0; b < batch; b++) {
            if ((u->q[0][b] <= u->q[1][b]) == m)
                continue;
            for (int l = 0; l + 1 < u->critic.layers; l++) {
                const size_t apart = padded(u->critic.sizes[l + 1]);
                const size_t count = (size_t)share(w, (int)apart, PANEL, &first);
                float *const column = u->hidden[m][l] + first;
                memmove(column + (size_t)rows * apart, column + (size_t)b * apart,
                        count * sizeof(float));
            }
            if (leads) {
                u->backup[rows] = 1.0f;
                u->chosen[rows] = b;
            }
            rows++;
        }
        meet(u);
        const float *by_sums =
            NAME(backward)(w, &u->critic, m, NULL, 0, rows, u->hidden[m], u->backup);
        own = share(w, rows, PANEL, &first);
        NAME(pack)(u->critic.values + weight_at(&u->critic, 0, m) + o, wide, a, (size_t)both,
                   w->panels);
        NAME(multiply)(&(Product){wide, 0, by_sums + (size_t)first * padded(wide), padded(wide), 1,
                                  w->panels, NULL, NULL, u->delta + (size_t)first * out_width,
                                  out_width},
                       own, a);
        for (int r = first; r < first + own; r++)
            memcpy(u->by_action + u->chosen[r] * a, u->delta + (size_t)r * out_width,
                   (size_t)a * sizeof(float));
        meet(u);
    }
    const float *raw = u->output + (size_t)batch * out_width;
    const float *action = u->action + batch * a;
    const float *moved = u->deviation + batch * a;
    own = share(w, batch, 1, &first);
    for (int b = first; b < first + own; b++)
        for (int j = 0; j < a; j++) {
            const size_t to = (size_t)b * out_width + (size_t)j;
            const float taken = action[b * a + j], log_std = raw[to + (size_t)a];
            const float slope = -per_row * u->by_action[b * a + j] * (1.0f - taken * taken);
            /* d log pi / d u = 2 tanh u; no gradient where the log std was clamped */
            const float by_mean = slope + 2.0f * per_row * temperature * taken;
            const int inside = log_std >= -20.0f && log_std <= 2.0f;
            u->delta[to] = by_mean;
            u->delta[to + (size_t)a] =
                inside ? by_mean * moved[b * a + j] - per_row * temperature : 0.0f;
        }
    meet(u);
    float *tail[MOST_LAYERS];
    for (int l = 0; l + 1 < u->actor.layers; l++)
        tail[l] = u->hidden[2][l] + (size_t)batch * padded(inputs(&u->actor, l + 1));
    NAME(backward)(w, &u->actor, 0, fresh, pair_width, batch, tail, u->delta);
    meet(u);
    NAME(adam)(w, &u->actor, u->rates[2], u->rates[3], NULL, 0.0f);

    if (!leads)
        return;
    u->sums[0] += squares;
    u->sums[1] += (double)temperature * entropy;
    u->sums[3] += mean_q;
    u->sums[4] += (double)temperature;
    u->sums[5] += entropy;
    if (u->log_temperature.values) { /* 2018b, Eq. 18 */
        *u->log_temperature.gradient =
            temperature * ((float)a - (float)(entropy * per_row));
        NAME(adam)(w, &u->log_temperature, u->rates[4], u->rates[5], NULL, 0.0f);
        *u->temperature = exponential(*u->log_temperature.values);
    }
}

#undef NAME
#undef VECTOR
#undef LANES
#undef LOAD
#undef STORE
#undef SET
#undef FMA
#undef MAX
#undef OPEN
#undef ROWS
#undef FEW
#undef PANELS
