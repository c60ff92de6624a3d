/* SPDX-License-Identifier: MIT */
/*
 * Data-parallel training: every rank holds the whole model and a share of each batch, and the ranks
 * add up their gradients with one all-reduce a step.
 *
 *     jackal run -n 4 -- data_parallel
 *
 * The model is a classifier of handwritten digits with one hidden layer (64 pixels, tanh, softmax
 * over 10 digits), trained by stochastic gradient descent with momentum. A batch is the same set of
 * images whatever the number of ranks, so the loss curve is the same too, up to the rounding of
 * sums in another order.
 */
#include "digits.h"

#include <jackal/collective.h>
#include <jackal/jackal.h>

#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_HIDDEN = 1024 };

struct options {
    int epochs, batch, hidden, seed, check;
    double lr;
    const char *data;
};

/* All parameters lie in one array, so that one call moves them: w1[PIXELS][hidden], b1[hidden],
 * w2[DIGITS][hidden], b2[DIGITS]. The gradient and the velocity have the same layout. */
struct model {
    int hidden;
    size_t count;
    float *weights, *gradient, *velocity;
    double *sum; /* of the gradients of this rank's images: float would lose digits here */
};

struct job {
    jackal_group *group;
    int rank, size;
    double communication_s, compute_s;
    uint64_t random;
};

/* ---- small things ---- */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *allocate(size_t count, size_t n_bytes) {
    void *memory = calloc(count > 0 ? count : 1, n_bytes);
    if (!memory) {
        fprintf(stderr, "data_parallel: out of memory for %zu x %zu bytes\n", count, n_bytes);
        exit(1);
    }
    return memory;
}

/* The same numbers on every rank and every machine (xorshift64*), unlike rand(). */
static uint64_t random_bits(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static double random_unit(uint64_t *state) {
    return (double)(random_bits(state) >> 11) / 9007199254740992.0;
}

static void shuffle(int *order, int count, uint64_t *state) {
    for (int i = count - 1; i > 0; --i) {
        int j = (int)(random_bits(state) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* Where part `index` of `parts` begins if `count` things are cut as evenly as it goes. */
static int share(int count, int index, int parts) {
    return (int)((int64_t)count * index / parts);
}

/* A failed call ends the program; jackal run then ends the other ranks. */
static void need(const struct job *job, const char *call, jackal_status status) {
    if (status != JACKAL_OK) {
        fprintf(stderr, "data_parallel: rank %d: %s: %s: %s\n", job->rank, call,
                jackal_status_name(status), jackal_error_message(job->group));
        exit(1);
    }
}

/* ---- model ---- */

static struct model make_model(struct job *job, int hidden) {
    struct model model = {.hidden = hidden};
    size_t n_first = (size_t)(PIXELS + 1) * (size_t)hidden;
    model.count = n_first + (size_t)(hidden + 1) * DIGITS;
    model.weights = allocate(model.count, sizeof *model.weights);
    model.gradient = allocate(model.count, sizeof *model.gradient);
    model.velocity = allocate(model.count, sizeof *model.velocity);
    model.sum = allocate(model.count, sizeof *model.sum);
    for (size_t i = 0; i < model.count; ++i) {
        double range = i < n_first ? sqrt(6.0 / (PIXELS + hidden)) : sqrt(6.0 / (hidden + DIGITS));
        model.weights[i] = (float)(range * (2 * random_unit(&job->random) - 1));
    }
    /* the seed gives all ranks the same weights; the broadcast makes sure of it */
    need(job, "broadcast",
         jackal_broadcast(job->group, model.weights, model.count, JACKAL_FLOAT32, 0));
    return model;
}

static void free_model(struct model *model) {
    free(model->weights);
    free(model->gradient);
    free(model->velocity);
    free(model->sum);
}

/* Fills in the hidden layer and the probabilities of the ten digits. */
static void forward(const struct model *model, const float *pixels, float *hidden, double *digits) {
    const float *w1 = model->weights, *b1 = w1 + PIXELS * model->hidden;
    const float *w2 = b1 + model->hidden, *b2 = w2 + DIGITS * model->hidden;
    double total = 0, most;
    memcpy(hidden, b1, (size_t)model->hidden * sizeof *hidden);
    for (int i = 0; i < PIXELS; ++i) {
        for (int j = 0; j < model->hidden; ++j) {
            hidden[j] += pixels[i] * w1[i * model->hidden + j];
        }
    }
    for (int j = 0; j < model->hidden; ++j) {
        hidden[j] = tanhf(hidden[j]);
    }
    for (int k = 0; k < DIGITS; ++k) {
        digits[k] = (double)b2[k];
        for (int j = 0; j < model->hidden; ++j) {
            digits[k] += (double)hidden[j] * (double)w2[k * model->hidden + j];
        }
    }
    most = digits[0];
    for (int k = 1; k < DIGITS; ++k) {
        most = digits[k] > most ? digits[k] : most;
    }
    for (int k = 0; k < DIGITS; ++k) {
        digits[k] = exp(digits[k] - most); /* softmax; the shift keeps exp() in range */
        total += digits[k];
    }
    for (int k = 0; k < DIGITS; ++k) {
        digits[k] /= total;
    }
}

/* Adds the gradient of the loss of one image to model->sum. */
static void backward(struct model *model, const float *pixels, int digit) {
    float hidden[MOST_HIDDEN], below[MOST_HIDDEN] = {0};
    double digits[DIGITS];
    const float *w2 = model->weights + (PIXELS + 1) * model->hidden;
    double *d_w1 = model->sum, *d_b1 = d_w1 + PIXELS * model->hidden;
    double *d_w2 = d_b1 + model->hidden, *d_b2 = d_w2 + DIGITS * model->hidden;
    forward(model, pixels, hidden, digits);
    digits[digit] -= 1;
    for (int k = 0; k < DIGITS; ++k) {
        float error = (float)digits[k];
        d_b2[k] += (double)error;
        for (int j = 0; j < model->hidden; ++j) {
            d_w2[k * model->hidden + j] += (double)(error * hidden[j]);
            below[j] += error * w2[k * model->hidden + j];
        }
    }
    for (int j = 0; j < model->hidden; ++j) {
        below[j] *= 1 - hidden[j] * hidden[j];
        d_b1[j] += (double)below[j];
    }
    for (int i = 0; i < PIXELS; ++i) {
        for (int j = 0; j < model->hidden; ++j) {
            d_w1[i * model->hidden + j] += (double)(pixels[i] * below[j]);
        }
    }
}

/* ---- training ---- */

/* One step on images batch[0 … count − 1], of which this rank computes its share. */
static void train_step(struct job *job, struct model *model, const struct images *images,
                       const int *batch, int count, double lr) {
    double start = now_s();
    int last = share(count, job->rank + 1, job->size);
    memset(model->sum, 0, model->count * sizeof *model->sum);
    for (int i = share(count, job->rank, job->size); i < last; ++i) {
        backward(model, images->pixels + batch[i] * PIXELS, images->digits[batch[i]]);
    }
    for (size_t i = 0; i < model->count; ++i) {
        model->gradient[i] = (float)model->sum[i];
    }
    double computed = now_s();
    /* the heart of it: afterwards every rank has the gradient of the whole batch */
    need(job, "all_reduce",
         jackal_all_reduce(job->group, model->gradient, model->gradient, model->count,
                           JACKAL_FLOAT32, JACKAL_SUM));
    double reduced = now_s();
    for (size_t i = 0; i < model->count; ++i) {
        model->velocity[i] = 0.9f * model->velocity[i] + model->gradient[i] / (float)count;
        model->weights[i] -= (float)lr * model->velocity[i];
    }
    job->communication_s += reduced - computed;
    job->compute_s += now_s() - reduced + computed - start;
}

/* Mean loss over the images of order[0 … count − 1], and the share of them that is recognised. */
static void evaluate(struct job *job, const struct model *model, const struct images *images,
                     const int *order, int count, double *loss_p, double *accuracy_p) {
    double start = now_s(), sums[2] = {0, 0}, digits[DIGITS];
    float hidden[MOST_HIDDEN];
    int last = share(count, job->rank + 1, job->size);
    for (int i = share(count, job->rank, job->size); i < last; ++i) {
        int digit = images->digits[order[i]], best = 0;
        forward(model, images->pixels + order[i] * PIXELS, hidden, digits);
        for (int k = 1; k < DIGITS; ++k) {
            best = digits[k] > digits[best] ? k : best;
        }
        sums[0] -= log(digits[digit] > 1e-300 ? digits[digit] : 1e-300);
        sums[1] += best == digit;
    }
    double computed = now_s();
    need(job, "all_sum", jackal_all_sum(job->group, sums, sums, 2, JACKAL_FLOAT64));
    job->compute_s += computed - start;
    job->communication_s += now_s() - computed;
    *loss_p = sums[0] / count;
    *accuracy_p = sums[1] / count;
}

/* Trains on the first four fifths of a fixed random order; returns the accuracy on the last. */
static double train(struct job *job, struct model *model, const struct images *images,
                    const struct options *options) {
    int *order = allocate((size_t)images->count, sizeof *order);
    uint64_t fixed = 1; /* not the seed: the held-out images are always the same */
    int n_train = images->count - images->count / 5;
    double loss, accuracy;
    for (int i = 0; i < images->count; ++i) {
        order[i] = i;
    }
    shuffle(order, images->count, &fixed);
    for (int epoch = 1; epoch <= options->epochs; ++epoch) {
        shuffle(order, n_train, &job->random);
        for (int first = 0; first < n_train; first += options->batch) {
            int left = n_train - first;
            train_step(job, model, images, order + first,
                       left < options->batch ? left : options->batch, options->lr);
        }
        evaluate(job, model, images, order, n_train, &loss, &accuracy);
        if (job->rank == 0) {
            printf("epoch %3d  loss %.9g\n", epoch, loss);
            fflush(stdout);
        }
    }
    evaluate(job, model, images, order + n_train, images->count - n_train, &loss, &accuracy);
    free(order);
    return accuracy;
}

/* FNV-1a over the bytes of the weights. */
static uint64_t checksum(const struct model *model) {
    const unsigned char *bytes = (const unsigned char *)model->weights;
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < model->count * sizeof *model->weights; ++i) {
        sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return sum;
}

/* Prints a line for each rank; returns 1 if all have the same weights. */
static int compare_ranks(const struct job *job, const struct model *model) {
    uint64_t own = checksum(model), *sums = allocate((size_t)job->size, sizeof *sums);
    double own_s[2] = {job->compute_s, job->communication_s};
    double *all_s = allocate((size_t)job->size, sizeof own_s);
    int same = 1;
    need(job, "all_gather", jackal_all_gather(job->group, &own, sums, 1, JACKAL_UINT64));
    need(job, "all_gather", jackal_all_gather(job->group, own_s, all_s, 2, JACKAL_FLOAT64));
    for (int rank = 0; rank < job->size; ++rank) {
        same = same && sums[rank] == sums[0];
        if (job->rank == 0) {
            printf("rank %d  weights %016llx  compute %.3f s  communication %.3f s\n", rank,
                   (unsigned long long)sums[rank], all_s[2 * rank], all_s[2 * rank + 1]);
        }
    }
    free(sums);
    free(all_s);
    return same;
}

/* ---- options and main ---- */

static const char usage[] =
    "usage: data_parallel [--epochs N] [--batch N] [--hidden N] [--lr X] [--seed N]\n"
    "                     [--data FILE] [--check]\n"
    "Trains a classifier of handwritten digits on all ranks together; run it under jackal run.\n"
    "  --epochs N   passes over the images (default 20)\n"
    "  --batch N    images a step, of all ranks together (default 64)\n"
    "  --hidden N   units of the hidden layer, up to 1024 (default 32)\n"
    "  --lr X       learning rate (default 0.1)\n"
    "  --seed N     of the first weights and the order of images (default 1)\n"
    "  --data FILE  the images, 64 pixels and the digit a line\n"
    "  --check      exit status 1 if fewer than 95 % of the held-out images are recognised\n";

static double number(const char *name, const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "data_parallel: --%s takes a number from %g to %g, got \"%s\"\n", name, low,
                high, text);
        exit(2);
    }
    return value;
}

static struct options parse(int argc, char **argv) {
    static const struct option names[] = {
        {"epochs", 1, NULL, 'e'}, {"batch", 1, NULL, 'b'}, {"hidden", 1, NULL, 'w'},
        {"lr", 1, NULL, 'l'},     {"seed", 1, NULL, 's'},  {"data", 1, NULL, 'd'},
        {"check", 0, NULL, 'c'},  {"help", 0, NULL, 'h'},  {NULL, 0, NULL, 0}};
    struct options options = {
        .epochs = 20, .batch = 64, .hidden = 32, .seed = 1, .lr = 0.1, .data = NULL};
    int found, index = 0;
    while ((found = getopt_long(argc, argv, "", names, &index)) != -1) {
        const char *name = found == '?' ? "" : names[index].name;
        switch (found) {
        case 'e':
            options.epochs = (int)number(name, optarg, 1, 1e6);
            break;
        case 'b':
            options.batch = (int)number(name, optarg, 1, 1e6);
            break;
        case 'w':
            options.hidden = (int)number(name, optarg, 1, MOST_HIDDEN);
            break;
        case 'l':
            options.lr = number(name, optarg, 0, 1e3);
            break;
        case 's':
            options.seed = (int)number(name, optarg, 1, 1e9);
            break;
        case 'd':
            options.data = optarg;
            break;
        case 'c':
            options.check = 1;
            break;
        default:
            fputs(usage, found == 'h' ? stdout : stderr);
            exit(found == 'h' ? 0 : 2);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "data_parallel: takes no operand, got \"%s\"\n%s", argv[optind], usage);
        exit(2);
    }
    return options;
}

int main(int argc, char **argv) {
    struct options options = parse(argc, argv);
    struct images images = digits_read(argv[0], options.data);
    struct job job = {.random = (uint64_t)options.seed};
    jackal_config *config = jackal_config_new();
    if (!config || jackal_init(config, &job.group) != JACKAL_OK) {
        fprintf(stderr, "data_parallel: %s\n", config ? jackal_config_error(config) : "no memory");
        return 1;
    }
    job.rank = jackal_rank(job.group);
    job.size = jackal_size(job.group);
    if (job.rank == 0) {
        printf("%d ranks, %s\n", job.size, jackal_backend(job.group));
    }
    struct model model = make_model(&job, options.hidden);
    double accuracy = train(&job, &model, &images, &options);
    int same = compare_ranks(&job, &model);
    if (job.rank == 0) {
        printf("held-out accuracy %.4f\n", accuracy);
    }
    if (!same && job.rank == 0) {
        fprintf(stderr, "data_parallel: the ranks have different weights\n");
    }
    free_model(&model);
    digits_free(&images);
    jackal_group_free(job.group);
    jackal_config_free(config);
    return !same || (options.check && accuracy < 0.95);
}
