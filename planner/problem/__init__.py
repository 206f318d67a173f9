"""What is given: hardware, topology, model, training job, software and the scenario of them."""
