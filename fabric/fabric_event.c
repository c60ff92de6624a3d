/* SPDX-License-Identifier: MIT */
/*
 * What a program can sleep on: completion channels and the asynchronous events of a context. Both
 * are a list of news and a socket pair that holds one byte for each entry: its descriptor can be
 * polled, and a reader sleeps in the system without a lock. Who read a byte takes the oldest entry;
 * news of an object that goes are taken back together with their bytes.
 *
 * Numbers of events that programs were given are kept here, of those that they acknowledged in the
 * fields of verbs.h; destroying an object waits until both agree, as long as it takes: that is what
 * programs rely on.
 */
#include "fabric_cable.h"
#include "fabric_error.h"
#include "fabric_state.h"
#include "fabric_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct fabric_news {
    struct fabric_news *next;
    struct ibv_async_event event; /* of a completion channel: element.cq */
};

/* A leaf: taken with any other lock held, and none is taken under it. */
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;

static void event_set(int fd) {
#ifdef SO_NOSIGPIPE
    int yes = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

#ifdef MSG_NOSIGNAL
#define EVENT_SEND (MSG_NOSIGNAL | MSG_DONTWAIT)
#else
#define EVENT_SEND MSG_DONTWAIT
#endif

int fabric_news_open(struct fabric_news_list *list) {
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        return fabric_fail(errno, "no descriptors for events");
    }
    event_set(fds[0]);
    event_set(fds[1]);
    *list = (struct fabric_news_list){.read_fd = fds[0], .write_fd = fds[1]};
    return 0;
}

void fabric_news_close(struct fabric_news_list *list) {
    while (list->first != NULL) {
        struct fabric_news *news = list->first;

        list->first = news->next;
        free(news);
    }
    close(list->read_fd);
    close(list->write_fd);
}

/* One byte in the socket for each entry; those that it has no room for are owed. With the lock. */
static bool event_token(struct fabric_news_list *list) {
    return send(list->write_fd, "", 1, EVENT_SEND) == 1;
}

/* Without memory the event is lost: there is nothing to tell it with. */
static void event_push(struct fabric_news_list *list, const struct ibv_async_event *event) {
    struct fabric_news *news = calloc(1, sizeof *news);

    if (news == NULL) {
        return;
    }
    news->event = *event;
    pthread_mutex_lock(&event_lock);
    if (list->n_owed > 0 || !event_token(list)) {
        list->n_owed++;
    }
    if (list->first == NULL) {
        list->first = news;
    } else {
        list->last->next = news;
    }
    list->last = news;
    pthread_mutex_unlock(&event_lock);
}

static struct fabric_cq *event_cq_of(const struct ibv_async_event *event) {
    return (struct fabric_cq *)(void *)event->element.cq;
}

static struct fabric_qp *event_qp_of(const struct ibv_async_event *event) {
    return (struct fabric_qp *)(void *)event->element.qp;
}

static bool event_is_of_qp(enum ibv_event_type type) {
    return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
           type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_SQ_DRAINED ||
           type == IBV_EVENT_COMM_EST;
}

/* Takes the oldest entry, and counts it as told. */
static bool event_pop(struct fabric_news_list *list, bool is_async,
                      struct ibv_async_event *event_p) {
    struct fabric_news *news;

    pthread_mutex_lock(&event_lock);
    news = list->first;
    if (news != NULL) {
        list->first = news->next;
        *event_p = news->event;
        if (list->n_owed > 0 && event_token(list)) {
            list->n_owed--;
        }
        if (!is_async) {
            event_cq_of(event_p)->n_told++;
        } else if (event_p->event_type == IBV_EVENT_CQ_ERR) {
            event_cq_of(event_p)->n_told_async++;
        } else if (event_is_of_qp(event_p->event_type)) {
            event_qp_of(event_p)->n_told++;
        }
    }
    pthread_mutex_unlock(&event_lock);
    free(news);
    return news != NULL;
}

/* Sleeps until there is one, unless the program made the descriptor non-blocking or has a signal.
 */
static int event_get(struct fabric_news_list *list, bool is_async,
                     struct ibv_async_event *event_p) {
    char token;
    ssize_t n;

    do {
        n = read(list->read_fd, &token, 1);
        if (n != 1) {
            errno = n == 0 ? EIO : errno;
            return -1;
        }
    } while (!event_pop(list, is_async, event_p)); /* it was taken back meanwhile */
    return 0;
}

/* Removes what is about one object, with its tokens. */
static void event_take_back(struct fabric_news_list *list, const void *object) {
    struct fabric_news **at = &list->first;

    pthread_mutex_lock(&event_lock);
    list->last = NULL;
    while (*at != NULL) {
        struct fabric_news *news = *at;
        char token;

        if (news->event.element.cq != object) {
            list->last = news;
            at = &news->next;
            continue;
        }
        *at = news->next;
        free(news);
        /* A reader may have this token already: it will find nothing and go on sleeping. */
        if (list->n_owed > 0) {
            list->n_owed--;
        } else {
            (void)!recv(list->read_fd, &token, 1, MSG_DONTWAIT);
        }
    }
    pthread_mutex_unlock(&event_lock);
}

/* ------------------------------------------------------------------- raising */

static void event_raise(struct ibv_context *context, const struct ibv_async_event *event) {
    event_push(&fabric_context_of(context)->events, event);
}

void fabric_event_completion(struct fabric_cq *cq) {
    struct fabric_channel *channel = (struct fabric_channel *)(void *)cq->base.channel;
    struct ibv_async_event event = {.element.cq = &cq->base};

    if (atomic_exchange(&cq->armed, FABRIC_UNARMED) != FABRIC_UNARMED) {
        event_push(&channel->news, &event);
    }
}

void fabric_event_qp(struct fabric_qp *qp, enum ibv_event_type type) {
    struct ibv_async_event event = {.element.qp = &qp->base, .event_type = type};

    event_raise(qp->base.context, &event);
}

void fabric_event_cq(struct fabric_cq *cq) {
    struct ibv_async_event event = {.element.cq = &cq->base, .event_type = IBV_EVENT_CQ_ERR};

    event_raise(cq->base.context, &event);
}

/* Stands for all GIDs that a device has now. */
static uint64_t event_gids(const struct fabric_device *device) {
    uint64_t sum = 14695981039346656037u; /* FNV-1a */

    for (uint32_t i = 0; i < FABRIC_GID_TABLE; i++) {
        union ibv_gid gid;

        fabric_topology_gid(device->topology, device->host, device->index, i, &gid);
        for (size_t b = 0; b < sizeof gid.raw; b++) {
            sum = (sum ^ gid.raw[b]) * 1099511628211u;
        }
    }
    return sum;
}

/* A device that was taken out says so once. */
static void event_look_removed(struct fabric_context *context) {
    struct ibv_async_event event = {.event_type = IBV_EVENT_DEVICE_FATAL};

    if (!context->is_removed && fabric_world_is_removed(context->device->port)) {
        context->is_removed = true;
        event_raise(&context->base, &event);
    }
}

/* ------------------------------------------------------------------ contexts */

int fabric_event_open(struct fabric_context *context) {
    int rc = fabric_news_open(&context->events);

    if (rc != 0) {
        return rc;
    }
    context->base.async_fd = context->events.read_fd;
    fabric_state_lock();
    context->epoch = fabric_cable_epoch(context->device);
    context->is_up = fabric_cable_is_up(context->device);
    context->gids = event_gids(context->device);
    context->next = fabric_state.contexts;
    fabric_state.contexts = context;
    fabric_state_unlock();
    return 0;
}

void fabric_event_close(struct fabric_context *context) {
    struct fabric_context **at = &fabric_state.contexts;

    fabric_state_lock();
    while (*at != context) {
        at = &(*at)->next;
    }
    *at = context->next;
    fabric_state_unlock();
    fabric_news_close(&context->events);
}

void fabric_event_look(void) {
    uint64_t now = fabric_state.contexts == NULL ? 0 : fabric_now_ns();

    for (struct fabric_context *c = fabric_state.contexts; c != NULL; c = c->next) {
        struct ibv_async_event event = {.element.port_num = 1};
        uint32_t epoch = fabric_cable_epoch(c->device);
        bool is_up = fabric_cable_is_up(c->device);
        uint64_t gids;

        if (!fabric_rules_of(c->device)->is_roce ||
            (epoch == c->epoch && now < c->looked_ns + FABRIC_LOOK_NS)) {
            continue; /* where a pulled cable is silent, nobody is told */
        }
        c->epoch = epoch;
        c->looked_ns = now;
        if (is_up != c->is_up) {
            c->is_up = is_up;
            event.event_type = is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
            event_raise(&c->base, &event);
        }
        gids = event_gids(c->device);
        if (gids != c->gids) {
            c->gids = gids;
            event.event_type = IBV_EVENT_GID_CHANGE;
            event_raise(&c->base, &event);
        }
        event_look_removed(c);
    }
}

/* ----------------------------------------------------------------- forgetting */

static uint32_t event_count(const uint32_t *counter) {
    uint32_t n;

    pthread_mutex_lock(&event_lock);
    n = *counter;
    pthread_mutex_unlock(&event_lock);
    return n;
}

void fabric_event_forget_cq(struct fabric_cq *cq) {
    if (cq->base.channel != NULL) {
        event_take_back(&((struct fabric_channel *)(void *)cq->base.channel)->news, cq);
    }
    event_take_back(&fabric_context_of(cq->base.context)->events, cq);
    pthread_mutex_lock(&cq->base.mutex);
    while (cq->base.comp_events_completed != event_count(&cq->n_told) ||
           cq->base.async_events_completed != event_count(&cq->n_told_async)) {
        pthread_cond_wait(&cq->base.cond, &cq->base.mutex);
    }
    pthread_mutex_unlock(&cq->base.mutex);
}

void fabric_event_forget_qp(struct fabric_qp *qp) {
    event_take_back(&fabric_context_of(qp->base.context)->events, qp);
    pthread_mutex_lock(&qp->base.mutex);
    while (qp->base.events_completed != event_count(&qp->n_told)) {
        pthread_cond_wait(&qp->base.cond, &qp->base.mutex);
    }
    pthread_mutex_unlock(&qp->base.mutex);
}

/* ------------------------------------------------------------------ exported */

FABRIC_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct fabric_channel *channel;
    int rc = fabric_fault_call("ibv_create_comp_channel");

    if (rc != 0) {
        errno = rc;
        return NULL;
    }
    if (!fabric_rules_of(fabric_device_of(context))->has_channels) {
        fabric_fail(EOPNOTSUPP, "%s has no completion channels", context->device->name);
        return NULL;
    }
    channel = calloc(1, sizeof *channel);
    if (channel == NULL) {
        fabric_fail(ENOMEM, "no memory for a completion channel");
        return NULL;
    }
    if (fabric_news_open(&channel->news) != 0) {
        free(channel);
        return NULL;
    }
    channel->base.context = context;
    channel->base.fd = channel->news.read_fd;
    fabric_state_lock();
    fabric_context_of(context)->n_children++;
    fabric_state_unlock();
    return &channel->base;
}

FABRIC_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *base) {
    struct fabric_channel *channel = (struct fabric_channel *)(void *)base;
    int n;

    fabric_state_lock();
    n = base->refcnt;
    if (n == 0) {
        fabric_context_of(base->context)->n_children--;
    }
    fabric_state_unlock();
    if (n > 0) {
        return fabric_fail(EBUSY, "the completion channel still has %d completion queues", n);
    }
    fabric_news_close(&channel->news);
    free(channel);
    return 0;
}

FABRIC_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq_p,
                                   void **cq_context_p) {
    struct fabric_channel *channel = (struct fabric_channel *)(void *)base;
    struct ibv_async_event event;

    if (event_get(&channel->news, false, &event) != 0) {
        return -1;
    }
    *cq_p = event.element.cq;
    *cq_context_p = event.element.cq->cq_context;
    return 0;
}

FABRIC_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n_events) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n_events;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

FABRIC_EXPORT int ibv_get_async_event(struct ibv_context *context,
                                      struct ibv_async_event *event_p) {
    return event_get(&fabric_context_of(context)->events, true, event_p);
}

FABRIC_EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {
    if (event->event_type == IBV_EVENT_CQ_ERR) {
        struct ibv_cq *cq = event->element.cq;

        pthread_mutex_lock(&cq->mutex);
        cq->async_events_completed++;
        pthread_cond_signal(&cq->cond);
        pthread_mutex_unlock(&cq->mutex);
    } else if (event_is_of_qp(event->event_type)) {
        struct ibv_qp *qp = event->element.qp;

        pthread_mutex_lock(&qp->mutex);
        qp->events_completed++;
        pthread_cond_signal(&qp->cond);
        pthread_mutex_unlock(&qp->mutex);
    }
}
