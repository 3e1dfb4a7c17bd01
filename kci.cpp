// kc THREADS N H G L S D causal: user cycles of a call on the calling thread (threads=1), best and median
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstring>
#include "workload.h"
#include "attn/kernel/attend.h"
using namespace attn;
static int fd=-1;
double cyc(){ if(fd<0){perf_event_attr a; memset(&a,0,sizeof a); a.type=PERF_TYPE_HARDWARE;a.size=sizeof a;a.config=PERF_COUNT_HW_CPU_CYCLES;a.exclude_kernel=1; fd=syscall(SYS_perf_event_open,&a,0,-1,-1,0);} uint64_t x=0; if(read(fd,&x,8)!=8) abort(); return x;}
extern double g_in[8][16],g_pk[8][16];
int main(int c,char**v){
  kernel::ThreadPool pool(atoi(v[1])); const int n=atoi(v[2]);
  for(int i=3;i+5<c;i+=6){
    bench::Shape s{"x",false,(size_t)atoi(v[i]),(size_t)atoi(v[i+1]),(size_t)atoi(v[i+2]),(size_t)atoi(v[i+3]),(size_t)atoi(v[i+4]),(bench::Extra)atoi(v[i+5])};
    bench::Workload<float> w(s);
    std::vector<double> t;
    for(int r=0;r<n+3;r++){ auto a=cyc(); for(int j=0;j<10;j++) kernel::attend(w.problem(),w.results(),pool); if(r>2) t.push_back((cyc()-a)/10/1000); }
    for(int w=0;w<4;w++){printf("w%d %.1f (pack %.1f) ",w,g_in[w][0]/1000/10/(n+3),g_pk[w][0]/1000/10/(n+3)); g_in[w][0]=g_pk[w][0]=0;} std::sort(t.begin(),t.end());
    double ideal=w.flops()/64/1000;
    printf("H%s:%s L%s D%s c%s: kcycles best %.1f p25 %.1f med %.1f ideal %.1f eff %.3f %.3f\n",v[i],v[i+1],v[i+2],v[i+4],v[i+5],t[0],t[t.size()/4],t[t.size()/2],ideal,ideal/t[0],ideal/t[t.size()/2]);
  }
}
