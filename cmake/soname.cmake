# Sets `variable` to the SONAME of a shared library (libzip.so.4 for libzip.so).
function(attn_soname variable library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library}
                  OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  if(NOT headers MATCHES "SONAME +([^ \n]+)")
    message(FATAL_ERROR "${library} has no SONAME")
  endif()
  set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()
