/* attn: computes attention. A C interface to what the program `attn` computes, with the same keys,
 * the same results to the bit, and the same messages. docs/library.md has an example.
 *
 * All functions may be called by several threads at the same time. They write nothing to standard
 * output or standard error, throw nothing and keep no settings between calls. Text is UTF-8. */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include <stddef.h>

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor in memory. */
typedef struct attn_tensor {
  const char* name;  /* a key of a job ("Q", "mask", "W_O") or the name of an output ("weights") */
  const char* dtype; /* NumPy's name: "float64", "float32", "float16", "int8" to "int64", "uint8" to
                        "uint64", "bool" (a byte), "bfloat16", or "float8_e4m3fn", "float8_e5m2",
                        "float8_e4m3fnuz", "float8_e5m2fnuz" or "float8_e8m0fnu"; "<" or ">" before
                        it states the byte order; without, it is this machine's */
  size_t rank;       /* number of axes; at most 64 */
  const size_t* shape;      /* length of each axis; may be NULL if rank is 0 */
  const ptrdiff_t* strides; /* bytes from an element to the next along each axis; NULL: row-major
                               order without gaps */
  const void* data;         /* the first element; may be NULL if there are no elements */
} attn_tensor;

/* What a call returns: its outputs, or an error. */
typedef struct attn_result attn_result;

/* "0.1.0" */
ATTN_API const char* attn_version(void);

/* Computes one job, as `attn run`.
 *
 * job       the job's keys as a JSON object, as in a job file: {"causal": true, "outputs":
 *           ["context"]}; NULL: none. Values of tensors are also allowed here: numbers, names of
 *           files relative to the current folder, random tensors.
 * tensors   the tensors that are in memory. They are read during this call only, and in place if
 *           they are contiguous, aligned and, for bool, have no bytes but 0 and 1; otherwise
 *           they are copied first (attn_result_copied()), within max_memory.
 * settings  a JSON object that may have these keys, named as flags of the program; NULL: none.
 *           "threads": most threads to use; default: one per processor
 *           "max_memory": the limit of the job's memory, "2G" or bytes; default: 90 % of what this
 *           process could use at the first call
 *           "nan": if a result contains NaN: "warn" (the default), "allow" or "refuse"
 *
 * Returns NULL if there is not even memory for a result. The caller frees it. */
ATTN_API attn_result* attn_run(const char* job, const attn_tensor* tensors, size_t count,
                               const char* settings);

/* Compares outputs of another implementation with the job, recomputed in float64, as `attn compare
 * --reference`. Each tensor of `given` has the name of an output; a single one may have the name ""
 * if it is the context, or the output if W_O is given. `settings` may also have these keys:
 *
 *   "precision"  what the outputs were computed in: "f64", "f32", "tf32", "f16" or "bf16";
 *                default: their dtype
 *   "sums"       precision of their sums and softmax: "f64", "f32", "f16" or "bf16"; default: f32,
 *                or f64 if the precision is f64
 *   "rtol", "atol", "ulp"  tolerances that replace the error bounds of the precision
 *   "gate", "preset"  conditions that decide instead, as --gate and --preset: a string or an array
 *                of strings
 *   "baseline"   true or K: the rule of --baseline
 *
 * but not "threads" or "nan". The result has no outputs; its code is 1 if an element differs, and
 * its text and JSON are the report. */
ATTN_API attn_result* attn_compare(const attn_tensor* given, size_t given_count, const char* job,
                                   const attn_tensor* tensors, size_t count, const char* settings);

/* 0, or the exit code of the program: 1 differences found, 2 usage, 65 data, 66 no input, 70
 * internal error, 74 reading failed, 77 permission denied. */
ATTN_API int attn_result_code(const attn_result* result);

/* The error, a line for each problem; or the report of attn_compare(); otherwise "". */
ATTN_API const char* attn_result_text(const attn_result* result);

/* Warnings, a line each; "" if there are none. */
ATTN_API const char* attn_result_warnings(const attn_result* result);

/* The report of attn_compare() as a JSON object; otherwise "". */
ATTN_API const char* attn_result_json(const attn_result* result);

/* Bytes of input tensors that could not be read in place. */
ATTN_API size_t attn_result_copied(const attn_result* result);

/* The number of outputs that have not been taken. */
ATTN_API size_t attn_result_count(const attn_result* result);

/* Output `index`, in the order of the key "outputs", or NULL if there is none. It belongs to the
 * result. Outputs are contiguous, and each has memory of its own, which may be written to. */
ATTN_API const attn_tensor* attn_result_output(const attn_result* result, size_t index);

/* Takes the first output out of the result; NULL if there is none. The caller frees it. */
ATTN_API attn_tensor* attn_result_take(attn_result* result);

/* These two accept NULL. */
ATTN_API void attn_result_free(attn_result* result);
ATTN_API void attn_tensor_free(attn_tensor* tensor); /* one that was taken */

#ifdef __cplusplus
}
#endif

#endif
