# Included if scikit-build-core builds a wheel (pyproject.toml). Its folder of data becomes the prefix of the
# environment in which the wheel is installed.
option(ATTN_BUNDLE "Put OpenBLAS, licences and a bill of materials into the wheel" OFF)

if(ATTN_BUNDLE)
  set(bundle ${SKBUILD_DATA_DIR}/lib/attn)
  set(source ${PROJECT_SOURCE_DIR})
  install(CODE "
    execute_process(COMMAND ${source}/scripts/release/bundle-libraries ${bundle} COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${source}/scripts/release/sbom --linking static --bundled ${bundle}
                            --licenses ${SKBUILD_METADATA_DIR}/licenses
                            ${SKBUILD_METADATA_DIR}/sboms/attn.cdx.json
                    COMMAND_ERROR_IS_FATAL ANY)")
endif()
