// attn.h for C++: results that free themselves, and errors as exceptions.
#ifndef ATTN_ATTN_HPP
#define ATTN_ATTN_HPP

#include <attn/attn.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace attn {

/// what() has a line for each problem; code() is the exit code of the program.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, int code) : std::runtime_error(message), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

class Result {
 public:
  /// Takes ownership. Throws Error for any code but 0 and 1; std::bad_alloc for nullptr.
  explicit Result(attn_result* result) : result_(result, attn_result_free) {
    if (result == nullptr) throw std::bad_alloc();
    const int code = attn_result_code(result);
    if (code > 1) throw Error(attn_result_text(result), code);
  }

  bool same() const { return attn_result_code(get()) == 0; }  ///< of compare()
  std::string text() const { return attn_result_text(get()); }
  std::string json() const { return attn_result_json(get()); }
  std::string warnings() const { return attn_result_warnings(get()); }

  /// The outputs, which belong to this object.
  std::vector<attn_tensor> outputs() const {
    std::vector<attn_tensor> all;
    for (std::size_t i = 0; i < attn_result_count(get()); ++i)
      all.push_back(*attn_result_output(get(), i));
    return all;
  }

  const attn_result* get() const { return result_.get(); }

 private:
  std::unique_ptr<attn_result, void (*)(attn_result*)> result_;
};

/// The job and the settings are JSON objects.
inline Result run(const std::string& job, const std::vector<attn_tensor>& tensors,
                  const std::string& settings = "{}") {
  return Result(attn_run(job.c_str(), tensors.data(), tensors.size(), settings.c_str()));
}

inline Result compare(const std::vector<attn_tensor>& given, const std::string& job,
                      const std::vector<attn_tensor>& tensors, const std::string& settings = "{}") {
  return Result(attn_compare(given.data(), given.size(), job.c_str(), tensors.data(),
                             tensors.size(), settings.c_str()));
}

}  // namespace attn

#endif
