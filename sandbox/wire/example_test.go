package wire_test

import (
	"bytes"
	"fmt"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func ExampleReadFrame() {
	var pipe bytes.Buffer
	if err := wire.WriteFrame(&pipe, wire.FrameStdout, []byte("hello")); err != nil {
		fmt.Println(err)
	}
	typ, payload, err := wire.ReadFrame(&pipe)
	fmt.Println(typ == wire.FrameStdout, string(payload), err)
	// Output: true hello <nil>
}
