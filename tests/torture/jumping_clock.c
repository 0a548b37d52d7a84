/* A clock of the wall that jumps back and forth by more than a year with every look at it; that of durations goes on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static _Atomic long looks;

static long jump(void) { return (looks++ % 3 - 1) * 400L * 86400; }

int clock_gettime(clockid_t which, struct timespec *to) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(which, to);
    if (done == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) to->tv_sec += jump();
    return done;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (real == NULL) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int done = real(to, zone);
    if (done == 0) to->tv_sec += jump();
    return done;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to != NULL) *to = now.tv_sec;
    return now.tv_sec;
}
