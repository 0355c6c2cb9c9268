package lifecycle

import (
	"errors"
	"net"
	"strings"
)

// Notify sends systemd a state such as READY=1, through the socket that NOTIFY_SOCKET names. It
// does nothing if socket is empty.
func Notify(socket, state string) error {
	if socket == "" {
		return nil
	}
	if name, ok := strings.CutPrefix(socket, "@"); ok {
		socket = "\x00" + name // an abstract socket
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return errors.Join(err, conn.Close())
}
