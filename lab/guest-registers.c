// Lets User Mode Linux run programs on processors with more register state than it knows. Loaded into it by lab/guest.sh.
//
// UML saves and sets the extended registers of its processes by ptrace, with a buffer of 2,696 bytes, which ends with AVX-512.
// Linux accepts a buffer of exactly the size that the processor has: with AMX, 11,008 bytes (`xstateregs_set` in
// arch/x86/kernel/fpu/regset.c). The rest of the buffer is zero here: the state of parts that no process in the guest uses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long (*original)(int request, ...);
// UML has one CPU and small stacks.
static char registers[64 * 1024];
static size_t size;

__attribute__((constructor)) static void find(void) { original = dlsym(RTLD_NEXT, "ptrace"); }

long ptrace(enum __ptrace_request request, ...) {
  va_list arguments;
  va_start(arguments, request);
  pid_t process = va_arg(arguments, pid_t);
  void *address = va_arg(arguments, void *);
  void *data = va_arg(arguments, void *);
  va_end(arguments);
  if (request != PTRACE_SETREGSET || (long)address != NT_X86_XSTATE) return original(request, process, address, data);
  struct iovec *given = data;
  if (size == 0) {
    struct iovec all = {registers, sizeof registers};
    if (syscall(SYS_ptrace, PTRACE_GETREGSET, process, address, &all) < 0) return -1;
    size = all.iov_len;
    memset(registers, 0, sizeof registers);
  }
  if (given->iov_len >= size) return original(request, process, address, data);
  memcpy(registers, given->iov_base, given->iov_len);
  struct iovec whole = {registers, size};
  return syscall(SYS_ptrace, PTRACE_SETREGSET, process, address, &whole);
}
