# The worked examples' explanations, as HTML, Markdown and LaTeX: made by the program itself, so that they
# never differ from what it computes. latent-factors/ratings.json is a matrix for `attn svd`, not a job.
file(GLOB jobs CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/data/examples
     ${PROJECT_SOURCE_DIR}/data/examples/*/*.json)
list(FILTER jobs EXCLUDE REGEX "/example\\.json$|^latent-factors/ratings\\.json$")
set(pages)
foreach(job ${jobs})
  string(REPLACE "/" "-" page ${job})
  string(REGEX REPLACE "(-job)?\\.json$" "" page ${page})
  foreach(suffix html md tex)
    set(made ${PROJECT_BINARY_DIR}/explained/${page}.${suffix})
    add_custom_command(OUTPUT ${made} VERBATIM
      COMMAND attn run ${job} --explain ${made} --force
      DEPENDS attn ${PROJECT_SOURCE_DIR}/data/examples/${job}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/data/examples)
    list(APPEND pages ${made})
  endforeach()
endforeach()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/explained)
add_custom_target(explained ALL DEPENDS ${pages})
install(DIRECTORY ${PROJECT_BINARY_DIR}/explained DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
