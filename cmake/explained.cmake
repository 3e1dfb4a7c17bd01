# The worked examples' explanations: HTML pages made by the program itself, so that they never differ from
# what it computes. latent-factors/ratings.json is a matrix for `attn svd`, not a job.
file(GLOB jobs CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/data/examples
     ${PROJECT_SOURCE_DIR}/data/examples/*/*.json)
list(FILTER jobs EXCLUDE REGEX "/example\\.json$|^latent-factors/ratings\\.json$")
set(pages)
foreach(job ${jobs})
  string(REPLACE "/" "-" page ${job})
  string(REGEX REPLACE "(-job)?\\.json$" ".html" page ${page})
  set(page ${PROJECT_BINARY_DIR}/explained/${page})
  add_custom_command(OUTPUT ${page} VERBATIM
    COMMAND attn run ${job} --explain ${page} --force
    DEPENDS attn ${PROJECT_SOURCE_DIR}/data/examples/${job}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/data/examples)
  list(APPEND pages ${page})
endforeach()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/explained)
add_custom_target(explained ALL DEPENDS ${pages})
install(DIRECTORY ${PROJECT_BINARY_DIR}/explained DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
