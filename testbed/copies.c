/* Preloaded into a program: the program is loaded once, and runs in a copy of itself for each command line.
 *
 * Under emulation, loading a program and its libraries takes ten times as long as what it then does. A request is a
 * packet of arguments, each with a NUL at its end, and three files: its standard input, output and error. The answer
 * is the status of waitpid(2). Used by testbed/copies.py; needs glibc 2.34 or newer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 3, MOST_BYTES = 65536, MOST_ARGUMENTS = 255 };
typedef int (*Main)(int, char **, char **);
typedef int (*Start)(Main, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static Main program;

static void run(char *text, ssize_t length, const int *files, int requests) {
    char *arguments[MOST_ARGUMENTS + 1];
    int count = 0;
    for (char *at = text; at < text + length && count < MOST_ARGUMENTS; at += strlen(at) + 1)
        arguments[count++] = at;
    arguments[count] = NULL;
    for (int number = 0; number < FILES; number++)
        dup2(files[number], number);
    close(requests);
    exit(program(count, arguments, environ));
}

static int serve(int count, char **arguments, char **environment) {
    static char text[MOST_BYTES + 1];
    const char *number = getenv("COPIES_REQUESTS");
    int requests = number == NULL ? -1 : atoi(number);
    (void)count, (void)arguments, (void)environment;
    unsetenv("LD_PRELOAD");
    unsetenv("COPIES_REQUESTS");
    for (;;) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(FILES * sizeof(int))];
        } control;
        struct iovec part = {text, MOST_BYTES};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t length = recvmsg(requests, &message, MSG_CMSG_CLOEXEC);
        struct cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;
        if (header == NULL || header->cmsg_len != CMSG_LEN(FILES * sizeof(int)))
            _exit(length == 0 ? 0 : 1);
        int files[FILES], status = -1;
        memcpy(files, CMSG_DATA(header), sizeof files);
        text[length] = 0;
        pid_t child = fork();
        if (child == 0)
            run(text, length, files, requests);
        for (int place = 0; place < FILES; place++)
            close(files[place]);
        if (child > 0)
            waitpid(child, &status, 0);
        if (send(requests, &status, sizeof status, MSG_NOSIGNAL) != sizeof status)
            _exit(1);
    }
}

int __libc_start_main(Main main, int count, char **arguments, void (*init)(void), void (*fini)(void),
                      void (*at_exit)(void), void *stack) {
    program = main;
    return ((Start)dlsym(RTLD_NEXT, "__libc_start_main"))(serve, count, arguments, init, fini, at_exit, stack);
}
