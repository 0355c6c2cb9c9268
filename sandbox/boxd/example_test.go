package boxd_test

import (
	"fmt"
	"log"
	"runtime"

	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// A driver puts the program where it can start it.
func ExampleProgram() {
	program, hash, err := boxd.Program(runtime.GOARCH)
	if err != nil {
		log.Fatal(err)
	}
	path, err := boxd.Extract("/var/lib/mine/run", program)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(path, hash)
}
