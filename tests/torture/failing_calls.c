/* Every call of libc that changes files below one folder is counted, and the one with a given number fails.

   Loaded by LD_PRELOAD, it stands between libc and everything in a process: Python, orbax, tensorstore. What it does:
   COPY   lets all calls through, and before each copies the folder as a kill at that call would leave it, a write
          by half;
   ONCE   lets one call fail, with nothing done;
   FULL   cuts one call short, a write by half, and from then on lets all fail that need room, as on a full disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <spawn.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OFF, COPY, ONCE, FULL };
enum { GO_ON, FAIL, HALF };
enum { NEEDS_ROOM = 1, IS_WRITE = 2 };

static int mode = OFF, error_number;
static long target;
static char folder[PATH_MAX], copies[PATH_MAX];
static size_t length;
static _Atomic long calls, fired;
static char met[PATH_MAX + 64]; /* the call that failed, for messages */
static __thread int inside, rest;
extern char **environ;

void fail_calls(const char *below, int how, long at, int error, const char *copies_to) {
    length = strlen(strcpy(folder, below));
    strcpy(copies, copies_to);
    target = at, error_number = error, met[0] = 0;
    calls = 0;
    fired = 0;
    mode = how;
}
void fail_no_more(void) { mode = OFF; }
long calls_counted(void) { return calls; }
long calls_failed(void) { return fired; }
const char *call_met(void) { return met; }

/* Waits, so that nothing changes meanwhile; other threads have nothing to change while this one writes. */
static void copy_folder(long number, const char *name, const char *full) {
    char to[PATH_MAX + 32], about[2 * PATH_MAX];
    pid_t pid;
    snprintf(to, sizeof to, "%s/%05ld", copies, number);
    char *words[] = {"cp", "-a", folder, to, NULL};
    if (access(folder, F_OK) == 0 && posix_spawnp(&pid, "cp", NULL, NULL, words, environ) == 0) waitpid(pid, NULL, 0);
    else mkdir(to, 0755);
    snprintf(to, sizeof to, "%s/%05ld.call", copies, number);
    snprintf(about, sizeof about, "%s %s", name, full + length);
    int fd = open(to, O_WRONLY | O_CREAT, 0644);
    if (write(fd, about, strlen(about)) < 0) abort();
    close(fd);
}

static int is_below(int descriptor, const char *path, char *full) {
    char base[PATH_MAX] = "";
    if (path == NULL || path[0] != '/') {
        char link[64];
        if (path != NULL && descriptor == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t got = readlink(link, base, sizeof base - 2);
        if (got < 0) return 0;
        base[got] = 0;
        if (path != NULL) strcat(base, "/");
    }
    snprintf(full, PATH_MAX, "%s%s", base, path == NULL ? "" : path);
    return strncmp(full, folder, length) == 0 && (full[length] == '/' || full[length] == 0);
}

static int decide(const char *name, int descriptor, const char *path, int kind) {
    if (mode == OFF || inside) return GO_ON;
    if (rest && kind & IS_WRITE) return rest = 0, GO_ON;
    rest = 0;
    int kept = errno, verdict = GO_ON;
    char full[PATH_MAX];
    inside = 1;
    if (is_below(descriptor, path, full)) {
        long number = ++calls;
        if (mode == COPY && kind & IS_WRITE) verdict = HALF;
        else if (mode == COPY) copy_folder(number, name, full);
        else if (number == target) {
            fired = 1;
            snprintf(met, sizeof met, "%s %s", name, full + length);
            verdict = kind & IS_WRITE && mode == FULL ? HALF : FAIL;
        } else if (mode == FULL && fired && kind & NEEDS_ROOM) {
            verdict = FAIL;
        }
    }
    inside = 0;
    errno = verdict == FAIL ? error_number : kept;
    return verdict;
}

/* The rest of a write that was done by half is another call, which is let through as a whole. */
static void copy_after(const char *name, int descriptor, int cut) {
    char full[PATH_MAX];
    int kept = errno;
    inside = 1;
    if (is_below(descriptor, NULL, full)) copy_folder(calls, name, full);
    inside = 0;
    rest = cut;
    errno = kept;
}

#define REAL(type, name, parameters) \
    static type (*real) parameters;  \
    if (real == NULL) real = (type(*) parameters)dlsym(RTLD_NEXT, #name)

#define CALL(type, name, parameters, arguments, descriptor, path, kind)               \
    type name parameters {                                                            \
        REAL(type, name, parameters);                                                 \
        if (decide(#name, descriptor, path, kind) == FAIL) return (type)-1;           \
        return real arguments;                                                        \
    }

#define WRITE(name, parameters, arguments, descriptor, size)                          \
    ssize_t name parameters {                                                         \
        REAL(ssize_t, name, parameters);                                              \
        int verdict = decide(#name, descriptor, NULL, NEEDS_ROOM | IS_WRITE);         \
        if (verdict == FAIL) return -1;                                               \
        int cut = verdict == HALF && size > 1;                                        \
        if (cut) size /= 2;                                                           \
        ssize_t done = real arguments;                                                \
        if (verdict == HALF && mode == COPY) copy_after(#name, descriptor, cut);      \
        return done;                                                                  \
    }


#define CHANGES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define MODE(flags) ({ mode_t m = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list l; va_start(l, flags); m = va_arg(l, mode_t); va_end(l); } m; })

#define OPEN(name)                                                                    \
    int name(const char *path, int flags, ...) {                                      \
        REAL(int, name, (const char *, int, ...));                                    \
        mode_t m = MODE(flags);                                                       \
        int room = flags & O_CREAT ? NEEDS_ROOM : 0;                                  \
        if (flags & CHANGES && decide(#name, AT_FDCWD, path, room) == FAIL) return -1; \
        return real(path, flags, m);                                                  \
    }
#define OPENAT(name)                                                                  \
    int name(int at, const char *path, int flags, ...) {                              \
        REAL(int, name, (int, const char *, int, ...));                               \
        mode_t m = MODE(flags);                                                       \
        int room = flags & O_CREAT ? NEEDS_ROOM : 0;                                  \
        if (flags & CHANGES && decide(#name, at, path, room) == FAIL) return -1;      \
        return real(at, path, flags, m);                                              \
    }
#define FOPEN(name)                                                                   \
    FILE *name(const char *path, const char *how) {                                   \
        REAL(FILE *, name, (const char *, const char *));                             \
        int changes = strpbrk(how, "wa+") != NULL;                                    \
        if (changes && decide(#name, AT_FDCWD, path, NEEDS_ROOM) == FAIL) return NULL; \
        return real(path, how);                                                       \
    }

OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) FOPEN(fopen) FOPEN(fopen64)
CALL(int, creat, (const char *path, mode_t m), (path, m), AT_FDCWD, path, NEEDS_ROOM)

WRITE(write, (int fd, const void *from, size_t size), (fd, from, size), fd, size)
WRITE(pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at), fd, size)
WRITE(pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at), fd, size)
WRITE(writev, (int fd, const struct iovec *from, int size), (fd, from, size), fd, size)
WRITE(pwritev, (int fd, const struct iovec *from, int size, off_t at), (fd, from, size, at), fd, size)
WRITE(sendfile, (int fd, int from, off_t *at, size_t size), (fd, from, at, size), fd, size)
WRITE(sendfile64, (int fd, int from, off64_t *at, size_t size), (fd, from, at, size), fd, size)
WRITE(copy_file_range, (int from, off64_t *a, int fd, off64_t *b, size_t size, unsigned f), (from, a, fd, b, size, f), fd, size)

CALL(int, fsync, (int fd), (fd), fd, NULL, 0)
CALL(int, fdatasync, (int fd), (fd), fd, NULL, 0)
CALL(int, ftruncate, (int fd, off_t size), (fd, size), fd, NULL, NEEDS_ROOM)
CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), fd, NULL, NEEDS_ROOM)
CALL(int, truncate, (const char *path, off_t size), (path, size), AT_FDCWD, path, NEEDS_ROOM)
CALL(int, fallocate, (int fd, int m, off_t at, off_t size), (fd, m, at, size), fd, NULL, NEEDS_ROOM)
CALL(int, rename, (const char *from, const char *to), (from, to), AT_FDCWD, to, 0)
CALL(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), b, to, 0)
CALL(int, renameat2, (int a, const char *from, int b, const char *to, unsigned f), (a, from, b, to, f), b, to, 0)
CALL(int, link, (const char *from, const char *to), (from, to), AT_FDCWD, to, NEEDS_ROOM)
CALL(int, linkat, (int a, const char *from, int b, const char *to, int f), (a, from, b, to, f), b, to, NEEDS_ROOM)
CALL(int, symlink, (const char *from, const char *to), (from, to), AT_FDCWD, to, NEEDS_ROOM)
CALL(int, symlinkat, (const char *from, int at, const char *to), (from, at, to), at, to, NEEDS_ROOM)
CALL(int, mkdir, (const char *path, mode_t m), (path, m), AT_FDCWD, path, NEEDS_ROOM)
CALL(int, mkdirat, (int at, const char *path, mode_t m), (at, path, m), at, path, NEEDS_ROOM)
CALL(int, unlink, (const char *path), (path), AT_FDCWD, path, 0)
CALL(int, unlinkat, (int at, const char *path, int f), (at, path, f), at, path, 0)
CALL(int, rmdir, (const char *path), (path), AT_FDCWD, path, 0)
CALL(int, remove, (const char *path), (path), AT_FDCWD, path, 0)
CALL(int, chmod, (const char *path, mode_t m), (path, m), AT_FDCWD, path, 0)
CALL(int, fchmod, (int fd, mode_t m), (fd, m), fd, NULL, 0)
CALL(int, fchmodat, (int at, const char *path, mode_t m, int f), (at, path, m, f), at, path, 0)
