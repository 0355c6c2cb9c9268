package wire

import (
	"encoding/json"
	"io"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// ControlFD is the descriptor number of boxd's end of the control socket, the only open file
// that boxd inherits. Its configuration and other files come through this socket, so that the
// driver can prepare them while the kernel starts the process.
const ControlFD = 3

const (
	// maxConfig is the greatest size of a JSON message from the driver, in bytes.
	maxConfig = 1 << 20
	// maxRights is how many descriptors the kernel accepts with one write.
	maxRights = 253
)

// AppendConfig appends the message with which a driver sends a Config: its JSON, then the
// contents of its files (Mount.Content), which are kept out of the JSON to avoid quoting.
func AppendConfig(buf []byte, c Config) ([]byte, error) {
	var contents []byte
	if c.Jail != nil {
		j := *c.Jail
		j.Mounts = append([]Mount(nil), j.Mounts...)
		for i := range j.Mounts {
			m := &j.Mounts[i]
			m.Length = len(m.Content)
			contents = append(contents, m.Content...)
		}
		c.Jail = &j
	}
	buf, err := AppendJSON(buf, FrameRequest, c)
	if err != nil {
		return nil, err
	}
	return AppendLong(buf, FrameRequest, contents)
}

// SendFiles sends a message together with open files; the driver calls it. write is one sendmsg:
// it sends bytes with the rights (descriptors), and returns how many bytes it sent.
func SendFiles(message []byte, files []int, write func(b, rights []byte) (int, error)) error {
	for len(message) > 0 {
		var rights []byte
		n := len(message)
		if len(files) > 0 {
			rights = syscall.UnixRights(files[:min(len(files), maxRights)]...)
			files = files[min(len(files), maxRights):]
		}
		if len(files) > 0 {
			n = 1 // descriptors can be sent only together with at least one byte
		}
		n, err := write(message[:n], rights)
		if err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// Control is boxd's end of the control socket. Its reads block the thread, which is acceptable
// because boxd has nothing else to do then. A Control is not safe for concurrent use.
type Control struct {
	fd    int
	in    *Reader
	files []int
}

// NewControl returns the Control for the control socket with the given descriptor.
func NewControl(fd int) *Control {
	c := &Control{fd: fd}
	c.in = NewReader(c)
	return c
}

// Config reads the Config that the driver sends; io.EOF means that the driver closed the socket.
func (c *Control) Config() (*Config, error) {
	cfg := new(Config)
	if err := c.Receive(cfg); err != nil {
		return nil, err
	}
	_, contents, err := c.in.NextLong()
	if err != nil {
		return nil, broken(err)
	}
	return cfg, cfg.complete(string(contents), c.files)
}

// complete replaces the positions of files in the Config by the received descriptors, and sets
// the contents of the Mounts.
func (c *Config) complete(contents string, files []int) error {
	bad := false
	file := func(at *int) {
		if *at < 0 || *at > len(files) {
			bad = true
		} else if *at > 0 {
			*at = files[*at-1]
		}
	}
	file(&c.Listener)
	file(&c.StateFD)
	if j := c.Jail; j != nil {
		file(&j.WorkCgroup)
		file(&j.BoxdProcs)
		for _, list := range [][]int{j.WorkTasks, j.BoxdTasks} {
			for i := range list {
				file(&list[i])
			}
		}
		for name, at := range j.Counters {
			file(&at)
			j.Counters[name] = at
		}
		for i := range j.Mounts {
			m := &j.Mounts[i]
			file(&m.TreeFD)
			if m.Length < 0 || m.Length > len(contents) {
				bad = true
				continue
			}
			m.Content, contents = contents[:m.Length], contents[m.Length:]
		}
	}
	if bad || contents != "" {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "the file contents and descriptors that came with the configuration are not those that boxd's configuration names")
	}
	return nil
}

// Receive reads one JSON message into v; io.EOF means that the driver closed the socket.
func (c *Control) Receive(v any) error {
	_, b, err := c.in.NextLong()
	if err != nil {
		return broken(err)
	}
	if len(b) > maxConfig {
		return holdfast.Errorf(holdfast.KindTooLarge, "config", "the driver sent boxd a message of more than %d bytes", maxConfig)
	}
	text := string(b)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "cannot decode the driver's message %s: %s", holdfast.Quote(text), err.Error())
	}
	return nil
}

func broken(err error) error {
	if err == io.EOF {
		return err
	}
	return holdfast.Errorf(holdfast.KindInvalid, "config", "boxd cannot read its configuration from descriptor %d: %w", ControlFD, err).
		WithHint("holdfast starts boxd itself: do not start it by hand")
}

// Tell sends a status to the driver.
func (c *Control) Tell(st JailStatus) error { return WriteJSON(c, FrameAnswer, st) }

// Lend sends a status together with an open file.
func (c *Control) Lend(st JailStatus, fd int) error {
	message, err := AppendJSON(nil, FrameAnswer, st)
	if err != nil {
		return err
	}
	return SendFiles(message, []int{fd}, func(b, rights []byte) (int, error) {
		return syscall.SendmsgN(c.fd, b, rights, nil, 0)
	})
}

// Close closes the control socket.
func (c *Control) Close() { _ = syscall.Close(c.fd) }

// Read implements io.Reader for the frame Reader. It stores the received descriptors in files.
func (c *Control) Read(b []byte) (int, error) {
	rights := make([]byte, syscall.CmsgSpace(4*maxRights))
	for {
		n, m, flags, _, err := syscall.Recvmsg(c.fd, b, rights, syscall.MSG_CMSG_CLOEXEC)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case flags&syscall.MSG_CTRUNC != 0:
			return 0, syscall.EMSGSIZE // the kernel dropped descriptors, because rights had no room for them
		}
		if err := c.keep(rights[:m]); err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

func (c *Control) keep(rights []byte) error {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	for _, m := range messages {
		files, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		c.files = append(c.files, files...)
	}
	return nil
}

// Write writes all of b.
func (c *Control) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		m, err := syscall.Write(c.fd, b[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
	}
	return len(b), nil
}
