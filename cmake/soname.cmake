# Sets `variable` to the name by which programs load a shared library: libzip.so.4 of libzip.so.
function(attn_soname variable library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library}
                  OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  if(NOT headers MATCHES "SONAME +([^ \n]+)")
    message(FATAL_ERROR "${library} says no SONAME")
  endif()
  set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()
