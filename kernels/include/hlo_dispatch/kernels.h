/* The C interface of libhlo_dispatch_kernels.so, for hosts of whatever language: the kernels behind the custom-calls
 * that hlo-dispatch writes, without Python. hlo_dispatch._kernels, which Python imports, is one of its hosts; whoever
 * loads the library in one process shares one registry and one set of vendor libraries.
 *
 * A host that runs rewritten modules needs three calls:
 *
 *   hlo_dispatch_load_onednn(NULL, 0, NULL)         the library that the calls were planned for
 *   hlo_dispatch_load_onemkl(NULL, NULL)            where a module calls that one, or hlo_dispatch_load_svml
 *   hlo_dispatch_register(api, "Host")              before an executable is compiled or loaded
 *
 * Every function may be called by any thread. One that can fail returns an error that the caller frees, or NULL; no
 * exception leaves the library. Text that is returned lives as long as the process, unless it is part of an object
 * that the caller frees. The library is never unloaded. */
#ifndef HLO_DISPATCH_KERNELS_H_
#define HLO_DISPATCH_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#define HLO_DISPATCH_EXPORT __attribute__((visibility("default")))

/* Counts up when this interface changes so that a program compiled against an older one would go wrong. */
#define HLO_DISPATCH_INTERFACE 1

#ifdef __cplusplus
extern "C" {
#endif

/* XLA's own, from xla/ffi/api/c_api.h, which jaxlib and every copy of XLA bring. */
struct XLA_FFI_Api;
struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;
struct XLA_FFI_TypeId;
struct XLA_FFI_TypeInfo;

/* Versions and paths. */

HLO_DISPATCH_EXPORT int hlo_dispatch_interface(void);       /* HLO_DISPATCH_INTERFACE of the library that is loaded */
HLO_DISPATCH_EXPORT const char* hlo_dispatch_version(void); /* the package's, such as 0.1.0 */
HLO_DISPATCH_EXPORT const char* hlo_dispatch_own_version(void);  /* of our own code's results and speed */
HLO_DISPATCH_EXPORT int64_t hlo_dispatch_abi(void);              /* of the calls' attributes, which say it, too */
HLO_DISPATCH_EXPORT const char* hlo_dispatch_library_path(void); /* this library's file */

/* Errors. */

typedef struct hlo_dispatch_error hlo_dispatch_error;

typedef enum {
  HLO_DISPATCH_INVALID = 1,     /* what was given is malformed */
  HLO_DISPATCH_UNSUPPORTED = 2, /* well-formed, but no library has a kernel for it */
  HLO_DISPATCH_UNAVAILABLE = 3, /* a library is not there, or not the one that is needed */
  HLO_DISPATCH_INTERNAL = 4     /* a library failed */
} hlo_dispatch_error_kind;

HLO_DISPATCH_EXPORT hlo_dispatch_error_kind hlo_dispatch_error_kind_of(const hlo_dispatch_error* error);
HLO_DISPATCH_EXPORT const char* hlo_dispatch_error_message(const hlo_dispatch_error* error);
HLO_DISPATCH_EXPORT void hlo_dispatch_error_free(hlo_dispatch_error* error); /* NULL is fine; so with all of these */

/* Vendor libraries. Each is loaded once, with what it needs from beside it, and stays. Loading the same file again does
 * nothing. Where `path` is NULL a file is looked for: the one that the environment names (HLO_DISPATCH_ONEDNN_LIBRARY,
 * HLO_DISPATCH_MKL_LIBRARY, HLO_DISPATCH_SVML_LIBRARY), one beside this library, one where pip puts it when it has
 * installed this library, and whatever the system's loader finds. The process's signal handlers stay as they are. A
 * oneDNN built for SYCL runs over TBB where that was tested; HLO_DISPATCH_ONEDNN_RUNTIME, sycl or tbb, demands one of
 * them.
 *
 * `bind_threads` other than 0: each of oneDNN's threads has a processor to itself, where it runs over SYCL; measured to
 * be better with two processors. `loaded` may be NULL. */

typedef struct {
  const char* path;
  const char* version;
  const char* runtime; /* what its threads run on: sycl, openmp, tbb, threadpool, sequential */
  const char* note;    /* oneDNN's: why it runs over SYCL where it could over TBB; else empty */
} hlo_dispatch_loaded;

HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_load_onednn(const char* path, int bind_threads,
                                                                 hlo_dispatch_loaded* loaded);
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_load_onemkl(const char* path, hlo_dispatch_loaded* loaded);
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_load_svml(const char* path, hlo_dispatch_loaded* loaded);
/* The BLAS and LAPACK inside SciPy, by address: `names` as Fortran has them, such as spotrf. */
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_offer_scipy(const char* const* names, void* const* addresses,
                                                                 size_t count, const char* version);

/* Says how a library is loaded that an executable needs and that is not loaded yet ("oneDNN", "oneMKL", "SVML",
 * "SciPy"). `load` calls `fail`, with a sentence and the `why` that it was given, where that cannot be done. Without
 * one, oneDNN, oneMKL and SVML are looked for as with a path of NULL. */
typedef void (*hlo_dispatch_fail)(void* why, const char* sentence);
typedef void (*hlo_dispatch_loader)(const char* library, hlo_dispatch_fail fail, void* why);
HLO_DISPATCH_EXPORT void hlo_dispatch_load_with(hlo_dispatch_loader load);

/* The process's signal handlers and this thread's signal stack, as they are now: when they are restored, what libraries
 * that were loaded meanwhile took over is put back. The loading functions do so themselves. */
typedef struct hlo_dispatch_signals hlo_dispatch_signals;
HLO_DISPATCH_EXPORT hlo_dispatch_signals* hlo_dispatch_keep_signals(void);
HLO_DISPATCH_EXPORT void hlo_dispatch_restore_signals(hlo_dispatch_signals* signals); /* frees them */

/* Nanoseconds of processor time that the slowest of so many threads takes for so many rounds of arithmetic at the peak
 * of the vector units, all of them at once; 0 where other work kept them from running at the same time. */
HLO_DISPATCH_EXPORT int64_t hlo_dispatch_nanoseconds_at_peak(int threads, int64_t rounds);

/* The kernel registry. */

typedef struct XLA_FFI_Error* (*hlo_dispatch_handler)(struct XLA_FFI_CallFrame*);

typedef struct {
  const char* name;            /* such as onednn.matmul */
  const char* target;          /* the custom-call's, such as hlo_dispatch.onednn.matmul */
  const char* library;         /* which library computes it */
  const char* instructions;    /* what the processor must have; empty: nothing in particular */
  const char* packed_by;       /* the kernel that prepacks its weights; empty: they are not prepacked */
  const char* joined_by;       /* the call-group kernel of its calls; empty: there is none */
  const char* const* routines; /* of BLAS and LAPACK that it calls, without the letter of the element type; NULL ends */
  int runs_alone;              /* whether hlo_dispatch_raw_call can run it */
  hlo_dispatch_handler instantiate;
  hlo_dispatch_handler execute;
  int only_copies;           /* whether it computes nothing */
  int may_write_over_source; /* whether, in a call group, its result may overwrite its first operand */
} hlo_dispatch_kernel;

/* The type of a state that handlers keep between their stages; XLA writes a number to `id`. */
typedef struct {
  const char* name;
  struct XLA_FFI_TypeId* id;
  const struct XLA_FFI_TypeInfo* info;
} hlo_dispatch_state_type;

HLO_DISPATCH_EXPORT size_t hlo_dispatch_kernel_count(void);
HLO_DISPATCH_EXPORT const hlo_dispatch_kernel* hlo_dispatch_kernel_at(size_t index); /* NULL: there is none */
HLO_DISPATCH_EXPORT size_t hlo_dispatch_state_type_count(void);
HLO_DISPATCH_EXPORT const hlo_dispatch_state_type* hlo_dispatch_state_type_at(size_t index);

/* Registers all state types, then all handlers, with the XLA whose table this is (XLA_FFI_GetApi() inside of it, or the
 * `api` of a call frame that it made). `platform` is XLA's name of it: Host (also: cpu). Once for each XLA. Loads no
 * vendor library. A state type has one number: two XLAs in one process have to agree about it. */
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_register(const struct XLA_FFI_Api* api, const char* platform);

/* Registers handlers of the LAPACK calls that JAX writes (lapack_spotrf_ffi and its like), with an XLA that lacks
 * jaxlib's: Cholesky, triangular solves, LU, QR, eigh and SVD, by oneMKL, or by our own code where there is none; by
 * oneMKL only, pivoted QR, products with Q, general eigenvalues, Schur forms, Hessenberg and tridiagonal reductions and
 * tridiagonal solves. Those that the XLA has already it keeps: the error says so. */
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_register_lapack(const struct XLA_FFI_Api* api,
                                                                     const char* platform);

/* Planning, for whoever writes such calls. Attributes are those of the custom-call. */

typedef struct hlo_dispatch_attributes hlo_dispatch_attributes;
HLO_DISPATCH_EXPORT hlo_dispatch_attributes* hlo_dispatch_attributes_new(void);
HLO_DISPATCH_EXPORT void hlo_dispatch_attributes_free(hlo_dispatch_attributes* attributes);
HLO_DISPATCH_EXPORT void hlo_dispatch_set_integer(hlo_dispatch_attributes* attributes, const char* name, int64_t value);
HLO_DISPATCH_EXPORT void hlo_dispatch_set_real(hlo_dispatch_attributes* attributes, const char* name, double value);
HLO_DISPATCH_EXPORT void hlo_dispatch_set_text(hlo_dispatch_attributes* attributes, const char* name, const char* value,
                                               size_t size);
HLO_DISPATCH_EXPORT void hlo_dispatch_set_integers(hlo_dispatch_attributes* attributes, const char* name,
                                                   const int64_t* values, size_t count);
/* A copy of `value`. */
HLO_DISPATCH_EXPORT void hlo_dispatch_set_nested(hlo_dispatch_attributes* attributes, const char* name,
                                                 const hlo_dispatch_attributes* value);
/* A value of a type that no attribute has: it is not missing, but is nothing that was expected. */
HLO_DISPATCH_EXPORT void hlo_dispatch_set_other(hlo_dispatch_attributes* attributes, const char* name);

typedef struct {
  const char* implementation; /* the library's own name for what runs */
  int64_t scratch_bytes;      /* of the call's second result */
  int reorders;               /* whether every call copies its weights between layouts */
  int64_t packed_bytes;       /* of prepacked weights; 0: there is nothing to prepack */
  const char* packed_layout;
} hlo_dispatch_answer;

/* Kernel support query: the answer, which the caller frees, or why there is no such kernel. */
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_plan(const char* target, const hlo_dispatch_attributes* attributes,
                                                          hlo_dispatch_answer** answer);
/* The same query, answered by a thread of the library; each number is waited for at most once. */
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_ask(const char* target, const hlo_dispatch_attributes* attributes,
                                                         int64_t* number);
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_wait(int64_t number, hlo_dispatch_answer** answer);
HLO_DISPATCH_EXPORT void hlo_dispatch_answer_free(hlo_dispatch_answer* answer);
/* Drops waiting queries and waits for those in progress; call it before the process ends. */
HLO_DISPATCH_EXPORT void hlo_dispatch_finish(void);

/* A call without XLA around it, for benchmarks. Operands and result as the custom-call has them, or what has no address
 * in memory of its own; run by one thread at a time. */
typedef struct hlo_dispatch_raw_call hlo_dispatch_raw_call;
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_raw_call_new(const char* target,
                                                                  const hlo_dispatch_attributes* attributes,
                                                                  void* const* addresses, const int64_t* bytes,
                                                                  size_t count, hlo_dispatch_raw_call** call);
HLO_DISPATCH_EXPORT hlo_dispatch_error* hlo_dispatch_raw_call_run(hlo_dispatch_raw_call* call, int64_t times);
HLO_DISPATCH_EXPORT void hlo_dispatch_raw_call_free(hlo_dispatch_raw_call* call);

#ifdef __cplusplus
}
#endif

#endif /* HLO_DISPATCH_KERNELS_H_ */
