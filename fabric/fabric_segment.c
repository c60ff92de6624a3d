/* SPDX-License-Identifier: MIT */
/*
 * A process is alive as long as its file is locked. The lock is a classic fcntl record lock: it
 * goes with the process whatever kills it, and it would also go with *any* descriptor of that file
 * that this process closes, so the own file is opened once and never by the paths that look at
 * others.
 *
 * A file that is not locked has a dead owner, or one that is between creating and locking it. The
 * latter finds its file unlinked or locked by the finder and starts again, so finding the dead
 * needs no lock over the folder; entering and leaving take the world's.
 */
#include "fabric_segment.h"
#include "fabric_error.h"
#include "fabric_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEGMENT_TRIES 64

static int segment_lock(int fd) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(fd, F_SETLK, &range) == 0 ? 0 : errno;
}

bool fabric_segment_is_locked(int fd) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(fd, F_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

int fabric_segment_reserve(int fd, uint64_t at, uint64_t n_bytes) {
#ifdef __APPLE__
    struct stat status;
    fstore_t store = {.fst_flags = F_ALLOCATEALL,
                      .fst_posmode = F_PEOFPOSMODE,
                      .fst_offset = 0,
                      .fst_length = (off_t)n_bytes};

    if (fstat(fd, &status) != 0) {
        return errno;
    }
    if ((uint64_t)status.st_size >= at + n_bytes) {
        return 0;
    }
    if (fcntl(fd, F_PREALLOCATE, &store) == -1 && errno == ENOSPC) {
        return ENOSPC;
    }
    return ftruncate(fd, (off_t)(at + n_bytes)) == 0 ? 0 : errno;
#else
    int rc;

    do {
        rc = posix_fallocate(fd, (off_t)at, (off_t)n_bytes);
    } while (rc == EINTR);
    return rc;
#endif
}

static int segment_check_folder(int fd, const char *place) {
    struct stat status;

    if (fstat(fd, &status) != 0) {
        return fabric_fail(errno, "%s: cannot be examined: %s", place, strerror(errno));
    }
    if (status.st_uid != geteuid()) {
        return fabric_fail(EACCES,
                           "%s: belongs to user %u, not to %u; remove it or choose another "
                           "JACKAL_FABRIC_NAME",
                           place, (unsigned)status.st_uid, (unsigned)geteuid());
    }
    if ((status.st_mode & 0777) != 0700) {
        return fabric_fail(EACCES, "%s: has mode %04o, must be 0700; remove it or chmod it", place,
                           (unsigned)(status.st_mode & 07777));
    }
    return 0;
}

/* Makes a folder below parent if it is not there, opens it without following links, checks it. */
static int segment_folder(int parent, const char *name, const char *place, int *fd_p) {
    int fd, rc;

    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST) {
        rc = errno;
        return fabric_fail(rc, "%s: cannot be made: %s", place, strerror(rc));
    }
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        rc = errno == ELOOP ? ENOTDIR : errno;
        return fabric_fail(rc, "%s: %s", place,
                           rc == ENOTDIR ? "is a link or no folder; remove it" : strerror(rc));
    }
    rc = segment_check_folder(fd, place);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    *fd_p = fd;
    return 0;
}

const char *fabric_segment_base(void) {
#ifdef __APPLE__
    const char *base = getenv("TMPDIR");

    return base == NULL || base[0] == '\0' ? "/tmp" : base;
#else
    return "/dev/shm";
#endif
}

void fabric_segment_root_name(char name[32]) {
    snprintf(name, 32, "jackal-%u", (unsigned)geteuid());
}

static int segment_open_folders(struct fabric_segment *segment, const char *name) {
    char root_name[32];
    char root_place[128];
    int base_fd, rc;

    fabric_segment_root_name(root_name);
    snprintf(root_place, sizeof root_place, "%.80s/%s", fabric_segment_base(), root_name);
    snprintf(segment->folder_name, sizeof segment->folder_name, "%s", name);
    snprintf(segment->place, sizeof segment->place, "%s/%s", root_place, name);
    base_fd = open(fabric_segment_base(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (base_fd < 0) {
        rc = errno;
        return fabric_fail(rc, "%s: %s", fabric_segment_base(), strerror(rc));
    }
    rc = segment_folder(base_fd, root_name, root_place, &segment->root_fd);
    close(base_fd);
    if (rc != 0) {
        return rc;
    }
    rc = segment_folder(segment->root_fd, name, segment->place, &segment->folder_fd);
    if (rc != 0) {
        close(segment->root_fd);
    }
    return rc;
}

/* "p017" to 17; 0 for anything else. */
static uint32_t segment_slot_of(const char *name) {
    uint32_t slot = 0;

    if (strlen(name) != 4 || name[0] != 'p') {
        return 0;
    }
    for (int i = 1; i < 4; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return 0;
        }
        slot = slot * 10 + (uint32_t)(name[i] - '0');
    }
    return slot <= FABRIC_SLOTS ? slot : 0;
}

int fabric_segment_open_other(const struct fabric_segment *segment, const char *name, int flags) {
    return openat(segment->folder_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
}

/* Out of descriptors or memory: that says nothing of the other process, which may well live. */
static bool segment_cannot_look(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

bool fabric_segment_is_alive(int folder_fd, uint32_t slot) {
    char name[16];
    bool is_alive;
    int fd;

    snprintf(name, sizeof name, "p%03u", slot % 1000);
    fd = openat(folder_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return segment_cannot_look(errno);
    }
    is_alive = fabric_segment_is_locked(fd);
    close(fd);
    return is_alive;
}

/* Looks at one file of another process: removes it if its owner is dead. Returns whether it lives;
 * *hash_p is then the topology that its owner was started with. */
static bool segment_examine(const struct fabric_segment *segment, const char *name,
                            uint32_t *hash_p) {
    uint32_t gone = 1;
    int fd = fabric_segment_open_other(segment, name, O_RDWR);
    bool alive = false;

    *hash_p = 0;
    if (fd < 0) {
        return segment_cannot_look(errno);
    }
    if (segment_lock(fd) == 0) {
        if (pwrite(fd, &gone, sizeof gone, offsetof(struct fabric_header, gone)) < 0) {
            gone = 0; /* only a hint: the lock tells as well */
        }
        unlinkat(segment->folder_fd, name, 0);
    } else {
        uint32_t words[3];

        alive = true;
        if (pread(fd, words, sizeof words, 0) == (ssize_t)sizeof words &&
            words[0] == FABRIC_MAGIC) {
            *hash_p = words[offsetof(struct fabric_header, topology_hash) / sizeof words[0]];
        }
    }
    close(fd);
    return alive;
}

/* Reclaims what dead processes left. Returns the number of live others, or -1 with a text if one of
 * them is of another topology. */
static int segment_sweep(struct fabric_segment *segment, uint32_t topology_hash) {
    int n_alive = 0;
    int fd = openat(segment->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (folder == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return 1; /* who cannot look must not think that nobody is there */
    }
    while ((entry = readdir(folder)) != NULL) {
        uint32_t slot = segment_slot_of(entry->d_name);
        uint32_t hash = 0;

        if (slot == 0 || slot == segment->slot || !segment_examine(segment, entry->d_name, &hash)) {
            continue;
        }
        if (topology_hash != 0 && hash != 0 && hash != topology_hash) {
            fabric_fail(EINVAL,
                        "%s: a running process has another description of this fabric; use the "
                        "same for all or another JACKAL_FABRIC_NAME",
                        segment->place);
            n_alive = -1;
            break;
        }
        n_alive++;
    }
    closedir(folder);
    return n_alive;
}

static uint64_t segment_random(void) {
    static _Atomic uint64_t calls;
    struct timespec now;
    uint64_t x;

    clock_gettime(CLOCK_REALTIME, &now);
    x = (uint64_t)now.tv_nsec + (uint64_t)now.tv_sec * 1000000007u + ((uint64_t)getpid() << 40) +
        atomic_fetch_add(&calls, 1);
    /* The finaliser of splitmix64: neighbours in, strangers out. Not a secret. */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Creates and locks one file. ESTALE: taken or swept meanwhile, try another. */
static int segment_create_slot(struct fabric_segment *segment, uint32_t slot) {
    struct stat status;
    int fd;

    snprintf(segment->file_name, sizeof segment->file_name, "p%03u", slot % 1000);
    fd = fabric_segment_open_other(segment, segment->file_name, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        return errno == EEXIST ? ESTALE : errno;
    }
    if (fchmod(fd, 0600) != 0 || segment_lock(fd) != 0 || fstat(fd, &status) != 0 ||
        status.st_nlink == 0) {
        close(fd);
        return ESTALE;
    }
    segment->fd = fd;
    segment->slot = slot;
    return 0;
}

static int segment_create(struct fabric_segment *segment) {
    /* A random start makes it unlikely that a newcomer gets the numbers of somebody just gone. */
    uint32_t first = (uint32_t)(segment_random() % FABRIC_SLOTS);

    for (uint32_t i = 0; i < FABRIC_SLOTS; i++) {
        int rc = segment_create_slot(segment, (first + i) % FABRIC_SLOTS + 1);

        if (rc == ENOENT) {
            return rc; /* the last one out removed the folder under us */
        }
        if (rc != ESTALE) {
            return rc == 0 ? 0
                           : fabric_fail(rc, "%s/%s: cannot be made: %s", segment->place,
                                         segment->file_name, strerror(rc));
        }
    }
    return fabric_fail(EBUSY, "%s: has %u processes already", segment->place, FABRIC_SLOTS);
}

static int segment_map(struct fabric_segment *segment, uint32_t topology_hash) {
    int rc = fabric_segment_reserve(segment->fd, 0, FABRIC_ENDS_AT);
    void *mapping;

    if (rc == 0 && ftruncate(segment->fd, (off_t)FABRIC_RINGS_AT) != 0) {
        rc = errno;
    }
    if (rc != 0) {
        return fabric_fail(rc, "%s: no space for the table of a process: %s", segment->place,
                           strerror(rc));
    }
    mapping = mmap(NULL, FABRIC_RINGS_AT, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (mapping == MAP_FAILED) {
        rc = errno;
        return fabric_fail(rc, "%s: cannot be mapped: %s", segment->place, strerror(rc));
    }
    segment->mapping = mapping;
    segment->header = mapping;
    segment->ends = (struct fabric_end *)(void *)(segment->mapping + FABRIC_ENDS_AT);
    segment->header->layout = FABRIC_LAYOUT;
    segment->header->topology_hash = topology_hash;
    atomic_store_explicit(&segment->header->magic, FABRIC_MAGIC, memory_order_release);
    return 0;
}

static void segment_leave_folders(struct fabric_segment *segment) {
    int base_fd = open(fabric_segment_base(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char root_name[32];

    /* Both fail while anybody else is there, which is right. */
    unlinkat(segment->root_fd, segment->folder_name, AT_REMOVEDIR);
    fabric_segment_root_name(root_name);
    if (base_fd >= 0) {
        unlinkat(base_fd, root_name, AT_REMOVEDIR);
        close(base_fd);
    }
    close(segment->folder_fd);
    close(segment->root_fd);
}

/* With the lock of the world: sweeps, makes the own file, joins the world. */
static int segment_take_place(struct fabric_segment *segment,
                              const struct fabric_topology *topology) {
    uint32_t hash = fabric_topology_hash(topology);
    int n_alive = segment_sweep(segment, hash);
    int rc = n_alive < 0 ? EINVAL : segment_create(segment);

    if (rc != 0) {
        return rc;
    }
    rc = segment_map(segment, hash);
    if (rc == 0) {
        rc = fabric_world_join(&fabric_world, segment, topology, n_alive == 0);
        if (rc != 0) {
            munmap(segment->mapping, FABRIC_RINGS_AT);
        }
    }
    if (rc != 0) {
        unlinkat(segment->folder_fd, segment->file_name, 0);
        close(segment->fd);
    }
    return rc;
}

/* What may be left of a fabric nobody is in; with the lock of the world. */
static void segment_clear(struct fabric_segment *segment) {
    if (segment_sweep(segment, 0) == 0) {
        unlinkat(segment->folder_fd, FABRIC_WORLD_FILE, 0);
    }
}

/* One try. ENOENT: the folder vanished between making and using it. */
static int segment_enter(struct fabric_segment *segment, const struct fabric_topology *topology) {
    int rc = segment_open_folders(segment, topology->name);

    if (rc != 0) {
        return rc;
    }
    rc = fabric_world_lock(&fabric_world, segment->folder_fd, segment->place);
    if (rc == 0) {
        rc = segment_take_place(segment, topology);
        if (rc == 0) {
            fabric_world_unlock(&fabric_world);
            return 0;
        }
        segment->slot = 0;
        segment_clear(segment);
        fabric_world_close(&fabric_world);
    }
    segment_leave_folders(segment);
    return rc;
}

int fabric_segment_open(struct fabric_segment *segment, const struct fabric_topology *topology) {
    int rc = ENOENT;

    for (int i = 0; i < SEGMENT_TRIES && rc == ENOENT; i++) {
        memset(segment, 0, sizeof *segment);
        rc = segment_enter(segment, topology);
    }
    if (rc != 0) {
        errno = rc;
        return rc;
    }
    segment->owner = getpid();
    segment->next_serial = segment_random() | 1;
    segment->next_number = (uint16_t)segment_random();
    segment->next_ring = FABRIC_RINGS_AT;
    segment->self = (struct fabric_peer){.slot = segment->slot,
                                         .refs = 1,
                                         .fd = -1,
                                         .header = segment->header,
                                         .ends = segment->ends};
    fabric_plan_start(topology);
    return 0;
}

void fabric_segment_unlink(struct fabric_segment *segment) {
    bool is_held;

    fabric_plan_stop();
    is_held = fabric_world_hold(&fabric_world) == 0;
    unlinkat(segment->folder_fd, segment->file_name, 0);
    if (is_held) {
        fabric_world_forget_slot(&fabric_world, segment->slot);
        segment_clear(segment);
        fabric_world_unlock(&fabric_world);
    } /* else somebody enters or leaves, and finds that we are gone */
    segment_leave_folders(segment);
    segment->owner = 0;
}

void fabric_segment_close(struct fabric_segment *segment) {
    if (segment->owner != getpid()) {
        return; /* a forked child holds copies, not the lock */
    }
    fabric_segment_unlink(segment);
    fabric_world_close(&fabric_world);
    munmap(segment->mapping, FABRIC_RINGS_AT);
    close(segment->fd);
}

uint32_t fabric_segment_number(struct fabric_segment *segment) {
    uint32_t n_ends = atomic_load_explicit(&segment->header->n_ends, memory_order_relaxed);

    for (;;) {
        uint32_t qpn = segment->slot << 16 | segment->next_number++;
        bool used = false;

        for (uint32_t i = 0; i < n_ends && !used; i++) {
            used = atomic_load_explicit(&segment->ends[i].serial, memory_order_relaxed) != 0 &&
                   atomic_load_explicit(&segment->ends[i].qpn, memory_order_relaxed) == qpn;
        }
        if (!used) {
            return qpn; /* there are 65536 numbers and 4096 ends */
        }
    }
}

int fabric_segment_take_end(struct fabric_segment *segment, struct fabric_end **end_p) {
    for (uint32_t i = 0; i < FABRIC_MAX_ENDS; i++) {
        uint32_t index = (segment->next_end + i) % FABRIC_MAX_ENDS;
        struct fabric_end *end = &segment->ends[index];
        uint32_t n_ends = atomic_load_explicit(&segment->header->n_ends, memory_order_relaxed);

        if (index >= n_ends) {
            int rc = fabric_segment_reserve(
                segment->fd, FABRIC_ENDS_AT + (uint64_t)index * sizeof *end, sizeof *end);

            if (rc != 0) {
                return fabric_fail(rc, "%s: no space for a queue pair: %s", segment->place,
                                   strerror(rc));
            }
        } else if (atomic_load_explicit(&end->serial, memory_order_relaxed) != 0) {
            continue;
        }
        if (index >= n_ends) {
            atomic_store_explicit(&segment->header->n_ends, index + 1, memory_order_release);
        }
        segment->next_end = (index + 1) % FABRIC_MAX_ENDS;
        *end_p = end;
        return 0;
    }
    return fabric_fail(ENOMEM, "this process has %u queue pairs already", FABRIC_MAX_ENDS);
}

int fabric_segment_take_ring(struct fabric_segment *segment, uint64_t *at_p, uint8_t **bytes_p) {
    struct fabric_own_ring *ring = calloc(1, sizeof *ring);
    int rc = ring == NULL
                 ? ENOMEM
                 : fabric_segment_reserve(segment->fd, segment->next_ring, FABRIC_RING_SIZE);
    void *bytes;

    if (rc != 0) {
        free(ring);
        return fabric_fail(rc, "%s: no space for %u KiB of a queue pair: %s", segment->place,
                           FABRIC_RING_SIZE / 1024, strerror(rc));
    }
    bytes = mmap(NULL, FABRIC_RING_SIZE, PROT_READ | PROT_WRITE, FABRIC_MAP_RING, segment->fd,
                 (off_t)segment->next_ring);
    if (bytes == MAP_FAILED) {
        rc = errno;
        fabric_segment_punch_ring(segment, segment->next_ring);
        free(ring);
        return fabric_fail(rc, "%s: a ring cannot be mapped: %s", segment->place, strerror(rc));
    }
    *ring = (struct fabric_own_ring){
        .next = segment->rings, .at = segment->next_ring, .bytes = bytes, .refs = 1};
    segment->rings = ring;
    segment->next_ring += FABRIC_RING_SIZE;
    *at_p = ring->at;
    *bytes_p = ring->bytes;
    return 0;
}

void fabric_segment_punch_ring(struct fabric_segment *segment, uint64_t at) {
#ifdef __APPLE__
    struct fpunchhole hole = {.fp_offset = (off_t)at, .fp_length = FABRIC_RING_SIZE};

    (void)fcntl(segment->fd, F_PUNCHHOLE, &hole);
#else
    (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                    FABRIC_RING_SIZE);
#endif
}
