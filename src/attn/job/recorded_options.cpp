#include "attn/job/recorded_options.h"

#include "attn/job/conventions.h"
#include "attn/job/field_value.h"
#include "attn/job/fields.h"

namespace attn {

const Json* recorded_key(const Json& made_by, const std::string& key) {
  const Json* job = made_by.find("job");
  if (job == nullptr) return nullptr;
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return job->find(key);
  const Json* group = job->find(key.substr(0, dot));
  return group == nullptr ? nullptr : group->find(key.substr(dot + 1));
}

Options recorded_options(const Json& made_by) {
  Options options;
  if (const Json* convention = recorded_key(made_by, "convention"))
    if (const auto name = convention->get<std::string>()) set_results_of_convention(*name, options);
  for (const Field& field : job_fields())
    if (const Json* value = recorded_key(made_by, field.key);
        value != nullptr && field.apply && !problem_with(field, *value))
      field.apply(*value, options);
  return options;
}

}  // namespace attn
