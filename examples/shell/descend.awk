# Gradient descent on y = w x + b over lines of "x y". Prints b, w, the mean squared error before the last step, the lines.
{ x[NR] = $1; y[NR] = $2 }

END {
    for (epoch = 0; epoch < epochs; epoch++) {
        gradient_b = gradient_w = loss = 0
        for (i = 1; i <= NR; i++) {
            error = w * x[i] + b - y[i]
            loss += error * error / NR
            gradient_b += 2 * error / NR
            gradient_w += 2 * error * x[i] / NR
        }
        b -= rate * gradient_b
        w -= rate * gradient_w
    }
    printf "%.9g %.9g %.9g %d\n", b, w, loss, NR
}
