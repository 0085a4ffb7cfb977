/* Preloaded (LD_PRELOAD) into tests/crash_points.py: counts the calls that change files below a directory, and makes the k-th of
 * them the process's last, or one that fails. fsync is counted but not done: a killed process does not need it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BEFORE, HALF, AFTER, FAIL, SHORT }; /* die before it, in the middle of a write, after it; fail; write half and go on */

static char directory[4096], calls[1 << 16];
static int armed, at, mode, number, count;

void shim_arm(const char *below, int call, int how, int error)
{
    snprintf(directory, sizeof directory, "%s", below);
    at = call, mode = how, number = error, count = 0, calls[0] = 0, armed = 1;
}

void shim_disarm(void) { armed = 0; }
int shim_count(void) { return count; }
const char *shim_calls(void) { return calls; } /* a line "name path" for each */

/* Return whether this call is the chosen one. */
static int chosen(const char *name, const char *path)
{
    if (!armed || strncmp(path, directory, strlen(directory)))
        return 0;
    size_t used = strlen(calls);
    snprintf(calls + used, sizeof calls - used, "%s %s\n", name, path + strlen(directory));
    return ++count == at;
}

static const char *path_of(int descriptor)
{
    static char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = armed ? readlink(link, path, sizeof path - 1) : -1;
    path[size < 0 ? 0 : size] = 0;
    return path;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define DIE _exit(42)

/* Do `call`, unless this is the chosen one; `type` is what it returns. */
#define GUARD(type, name, path, call)                     \
    do {                                                  \
        if (!chosen(name, path) || mode == SHORT)         \
            return call;                                  \
        if (mode == BEFORE || mode == HALF)               \
            DIE;                                          \
        if (mode == FAIL)                                 \
            return errno = number, (type)-1;              \
        (void)!call;                                      \
        DIE;                                              \
    } while (0)

#define OPEN(function)                                                                   \
    int function(const char *path, int flags, ...)                                       \
    {                                                                                    \
        va_list list;                                                                    \
        va_start(list, flags);                                                           \
        mode_t bits = va_arg(list, mode_t);                                              \
        va_end(list);                                                                    \
        int reads = (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY);           \
        GUARD(int, "open", reads ? "" : path, REAL(int, #function, const char *, int, ...)(path, flags, bits)); \
    }
OPEN(open)
OPEN(open64)

ssize_t write(int descriptor, const void *content, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) = REAL(ssize_t, "write", int, const void *, size_t);
    const char *path = path_of(descriptor);
    if (!chosen("write", path))
        return real(descriptor, content, size);
    if (mode == FAIL)
        return errno = number, -1;
    if (mode != BEFORE)
        size = real(descriptor, content, mode == AFTER ? size : size / 2);
    if (mode == SHORT)
        return size;
    DIE;
}

#define PWRITE(function)                                                                 \
    ssize_t function(int descriptor, const void *content, size_t size, off_t offset)     \
    {                                                                                    \
        GUARD(ssize_t, "pwrite", path_of(descriptor),                                    \
              REAL(ssize_t, #function, int, const void *, size_t, off_t)(descriptor, content, size, offset)); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define FTRUNCATE(function)                                                              \
    int function(int descriptor, off_t size)                                             \
    {                                                                                    \
        GUARD(int, "ftruncate", path_of(descriptor), REAL(int, #function, int, off_t)(descriptor, size)); \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

int fsync(int descriptor) { GUARD(int, "fsync", path_of(descriptor), 0); }

int link(const char *old, const char *new) { GUARD(int, "link", new, REAL(int, "link", const char *, const char *)(old, new)); }

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    GUARD(int, "link", new, REAL(int, "linkat", int, const char *, int, const char *, int)(from, old, to, new, flags));
}

int rename(const char *old, const char *new)
{
    GUARD(int, "rename", new, REAL(int, "rename", const char *, const char *)(old, new));
}

int unlink(const char *path) { GUARD(int, "unlink", path, REAL(int, "unlink", const char *)(path)); }

int mkdir(const char *path, mode_t bits) { GUARD(int, "mkdir", path, REAL(int, "mkdir", const char *, mode_t)(path, bits)); }

int futimens(int descriptor, const struct timespec times[2])
{
    GUARD(int, "touch", path_of(descriptor), REAL(int, "futimens", int, const struct timespec *)(descriptor, times));
}
