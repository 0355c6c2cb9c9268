package sandbox_test

import (
	"context"
	"crypto/rand"
	"log"
	"os"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// A driver starts a box; a Box runs commands in it.
func Example() {
	var driver sandbox.Driver // one of your own, held by package sandboxtest
	ctx := context.Background()
	spec := sandbox.Spec{Box: "w-mine", Dir: "/var/lib/mine"}
	if _, err := driver.Ensure(ctx, spec); err != nil {
		log.Fatal(err)
	}
	conn, err := driver.Connect(ctx, spec.Box)
	if err != nil {
		log.Fatal(err)
	}
	box, err := sandbox.Dial(ctx, spec.Box, conn, 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	call := sandbox.Call{ID: holdfast.CallID(id)}
	res, err := box.Exec(ctx, call, wire.ExecRequest{Shell: "make test"}, sandbox.ExecOptions{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		log.Fatal(err)
	}
	box.Release(call.ID) // once the result is kept, the box may forget it
	os.Exit(res.Code)
}
