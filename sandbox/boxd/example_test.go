package boxd_test

import (
	"fmt"
	"log"
	"runtime"

	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// A driver puts the program where it can start it.
func ExampleFor() {
	program, err := boxd.For(runtime.GOARCH)
	if err != nil {
		log.Fatal(err)
	}
	path, err := program.Extract("/var/lib/mine/run")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(path, program.Hash)
}
