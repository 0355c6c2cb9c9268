package snapshot_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkUnchangedTurn measures what a turn costs after which the server looks for changes in a tree of five files and finds
// none: the processor time of the process, in milliseconds.
func BenchmarkUnchangedTurn(b *testing.B) {
	w := newWorld(b, true)
	for i := range 5 {
		w.write(fmt.Sprint("workspace/", i), "some text")
	}
	w.turn(nil)
	// A scan reads a file again that was changed within two ticks of the clock before the last scan.
	<-time.After(2 * time.Second)
	w.turn(nil)
	settled := w.end(w.begin())
	before := processorTime(b)
	for b.Loop() {
		must(b, w.snaps.After(b.Context(), settled))
	}
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// BenchmarkSmallChange measures a turn that changed one of five small files, without a disk.
func BenchmarkSmallChange(b *testing.B) {
	w := newWorld(b, true)
	for i := range 5 {
		w.write(fmt.Sprint("workspace/", i), "some text")
	}
	w.turn(nil)
	before, n := processorTime(b), 0
	for b.Loop() {
		b.StopTimer()
		n++
		w.write("workspace/0", fmt.Sprint("text ", n))
		settled := w.end(w.begin())
		b.StartTimer()
		must(b, w.snaps.After(b.Context(), settled))
	}
	b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
