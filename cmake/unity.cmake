# Compiles the sources of a module together. The first group has the files before the first of the letters in
# ATTN_GROUPS_<module>, and each letter starts another. A new file thus changes one group; if every eight files made
# one, it would shift all that follow (docs/decisions/0014-unity-builds.md). With a sanitizer there is one group, because
# most of the time goes into functions that each group would instantiate again.
function(attn_unity target module)  # SOURCE...
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ATTN_UNITY} UNITY_BUILD_MODE GROUP)
  if(NOT ATTN_SANITIZE)
    get_property(starts GLOBAL PROPERTY ATTN_GROUPS_${module})
  endif()
  foreach(source ${ARGN})
    cmake_path(GET source STEM stem)
    set(group ${module})
    foreach(start ${starts})
      if(NOT stem STRLESS start)
        set(group ${module}_${start})
      endif()
    endforeach()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
